//! A shell on a virtual machine with containerd and the plugin: `hack/lab shell MACHINE`.

use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::binaries::Binaries;
use crate::command::{command, last_lines, run};
use crate::files;
use crate::job::Software;
use crate::pod::{Container, Pod};
use crate::scenario::shape::Shape;
use crate::testbed::Testbed;
use crate::view::View;
use crate::vm::{self, Machine};

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Name of a machine, or path of a machine file
    pub machine: String,
    /// Software of the VM
    #[command(flatten)]
    pub software: Software,
    /// File with the plugin's configuration; default: static policy, first core reserved
    #[arg(long)]
    pub config: Option<std::path::PathBuf>,
}

const HELP: &str = "\
run NAME CPUS...     start a pod with a container per amount: 4 is exclusive, 500m shares, 0 has no request
resize NAME CPUS     resize a pod's first container in place
rm NAME              remove a pod
ps                   list containers and where their processes may run
log [N]              show the last N lines of the plugin's log (default 20)
offline N, online N  set a CPU offline or online
kill plugin|runtime  kill (SIGKILL) and restart
config FILE          change the plugin's ConfigMap to a file of the VM
uninstall            remove the plugin and revert its changes; uninstall --containers: also to containers
topology             draw the machine, as read by the plugin
!COMMAND             run a shell command in the VM
exit                 switch the VM off
";

/// Boots a VM and connects its shell with standard input and output.
pub fn start(options: &Options) -> Result<()> {
    let machine = Machine::load(&options.machine)?;
    let binaries = Binaries::for_platform(&Binaries::build()?, machine.platform)?;
    let config = match &options.config {
        Some(path) => files::read(path)?,
        None => Shape::of(&machine)?.config(""),
    };
    vm::shell(&machine, options.software, &config, &binaries)
}

/// In the guest: answers commands until `exit` or the end of `input`.
pub(crate) fn serve(
    testbed: &mut Testbed<'_>,
    input: impl BufRead,
    mut output: impl Write,
) -> Result<()> {
    const CLOSED: &str = "the terminal is closed";
    write!(output, "type help for a list of commands\nlab> ").context(CLOSED)?;
    for line in input.lines() {
        let line = line.context("cannot read a command")?;
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"exit") {
            break;
        }
        let answer = answer(testbed, &line, &words).unwrap_or_else(|error| format!("{error:#}\n"));
        write!(output, "{answer}lab> ").context(CLOSED)?;
        output.flush().context(CLOSED)?;
    }
    Ok(())
}

fn answer(testbed: &mut Testbed<'_>, line: &str, words: &[&str]) -> Result<String> {
    if let Some(shell) = line.trim_start().strip_prefix('!') {
        return run(&mut command("sh", ["-c", &format!("{shell} 2>&1")]));
    }
    let cpu = |text: &str| text.parse().with_context(|| format!("{text:?} is not a CPU number"));
    match words {
        [] => return Ok(String::new()),
        ["help"] => return Ok(HELP.to_owned()),
        ["topology"] => return run(&mut command("/lab/cpuctl", ["topology"])),
        ["log"] => return Ok(last_lines(&testbed.log()?, 20) + "\n"),
        ["log", count] => {
            let count = count.parse().with_context(|| format!("{count:?} is not a number"))?;
            return Ok(last_lines(&testbed.log()?, count) + "\n");
        }
        ["ps"] => return Ok(table(&testbed.look()?)),
        ["run", name, amounts @ ..] if !amounts.is_empty() => {
            testbed.start(&pod(name, amounts)?)?
        }
        ["resize", name, amount] => testbed.resize(name, milli(amount)?)?,
        ["rm", name] => testbed.remove(name)?,
        ["offline", number] => testbed.set_online(cpu(number)?, false)?,
        ["online", number] => testbed.set_online(cpu(number)?, true)?,
        ["kill", "plugin"] => testbed.kill_plugin()?,
        ["kill", "runtime"] => testbed.kill_runtime()?,
        ["config", file] => testbed.swap_config(&files::read(Path::new(file))?)?,
        ["uninstall", options @ ..] if matches!(options, [] | ["--containers"]) => {
            testbed.uninstall()?;
            return testbed.revert(!options.is_empty());
        }
        _ => bail!("unknown command {line:?}: type help for a list"),
    }
    Ok(String::new())
}

/// Guaranteed if one container has whole CPUs, as all have limits then.
fn pod(name: &str, amounts: &[&str]) -> Result<Pod> {
    let amounts = amounts.iter().map(|text| milli(text)).collect::<Result<Vec<i64>>>()?;
    let all_share = amounts.iter().all(|milli| milli % 1000 != 0);
    let containers = amounts.iter().enumerate().map(|(number, milli)| {
        let name = if number == 0 { "main".to_owned() } else { format!("more-{number}") };
        match *milli {
            0 => Container::best_effort(&name),
            milli if all_share => Container::burstable(&name, milli),
            milli => Container::guaranteed(&name, milli),
        }
    });
    Ok(Pod::new(name, containers))
}

/// `2` or `500m`, in thousandths of a CPU.
fn milli(text: &str) -> Result<i64> {
    let parsed = match text.strip_suffix('m') {
        Some(milli) => milli.parse::<u16>().ok().map(i64::from),
        None => text.parse::<u16>().ok().map(|cpus| i64::from(cpus) * 1000),
    };
    parsed.with_context(|| format!("{text:?} is not an amount of CPU, such as 2 or 500m"))
}

fn table(view: &View) -> String {
    let mut text = format!(
        "{:20} {:10} {:10} {:>8}  {:20} {}\n",
        "POD", "CONTAINER", "CLASS", "CPU", "MAY RUN ON", "EXCLUSIVE"
    );
    for container in &view.containers {
        let _ = writeln!(
            text,
            "{:20} {:10} {:10} {:>7}m  {:20} {}",
            container.pod,
            container.container,
            format!("{:?}", container.qos),
            container.request,
            container.allowed,
            container.claimed.as_deref().unwrap_or("-"),
        );
    }
    let _ = writeln!(text, "online CPUs: {}", view.hardware.online);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Qos;

    #[test]
    fn amounts_decide_a_pods_class() {
        assert_eq!(["2", "500m", "0"].map(|text| milli(text).unwrap()), [2000, 500, 0]);
        for bad in ["", "m", "-1", "1.5", "two"] {
            assert!(milli(bad).is_err(), "{bad}");
        }
        let qos = |amounts: &[&str]| pod("p", amounts).unwrap().qos();
        assert_eq!(qos(&["2"]), Qos::Guaranteed);
        assert_eq!(qos(&["2", "500m"]), Qos::Guaranteed);
        assert_eq!(qos(&["500m"]), Qos::Burstable);
        assert_eq!(qos(&["0"]), Qos::BestEffort);
    }
}
