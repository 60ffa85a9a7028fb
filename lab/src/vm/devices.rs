//! What a machine with `devices: true` has in addition, all on virtio and without the host's network:
//!
//! | device | in the guest |
//! |---|---|
//! | a disk without content | `/dev/vdc` |
//! | two network interfaces, connected with each other | `eth0` and `eth1` |
//! | a port of QEMU's monitor, with which the guest plugs in devices (QMP) | `/dev/vportNp1`, named `monitor` |
//! | a slot for them, and the other end of a third network interface | |
//! | serial devices without ports, for their interrupts: one for each queue | |

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};

/// Sparse. Reading all of it takes longer than any scenario.
const DISK: u64 = 8 << 30;

/// Serial devices. Linux asks for an interrupt for each of the 64 queues of 31 ports, whether or not a
/// port exists, and for one more.
const SERIAL: usize = 10;

pub(super) fn arguments(directory: &Path) -> Result<Vec<String>> {
    let disk = directory.join("disk");
    let file = File::create(&disk).context("cannot create the disk")?;
    file.set_len(DISK).context("cannot create the disk")?;
    // QEMU is its own client: what the guest writes to the port reaches the monitor.
    let socket = directory.join("monitor");
    let socket = socket.display();
    let mut arguments = vec![
        ("-drive", format!("file={},if=virtio,format=raw,snapshot=on", disk.display())),
        ("-chardev", format!("socket,id=monitor,path={socket},server=on,wait=off")),
        ("-mon", "chardev=monitor,mode=control".to_owned()),
        ("-chardev", format!("socket,id=port,path={socket}")),
        ("-device", "virtio-serial-pci,id=control,max_ports=2".to_owned()),
        ("-device", "virtserialport,bus=control.0,chardev=port,name=monitor".to_owned()),
        ("-device", "pcie-root-port,id=spare,chassis=1,slot=1".to_owned()),
    ];
    for number in 0..3 {
        arguments.push(("-netdev", format!("hubport,id=net{number},hubid=0")));
    }
    for number in 0..2 {
        let device = format!("virtio-net-pci,netdev=net{number},romfile=");
        arguments.push(("-device", device));
    }
    // Without an event descriptor for each queue, of which a process may have too few.
    let serial = "virtio-serial-pci,max_ports=31,vectors=65,ioeventfd=off";
    arguments.extend((0..SERIAL).map(|_| ("-device", serial.to_owned())));
    Ok(arguments.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect())
}
