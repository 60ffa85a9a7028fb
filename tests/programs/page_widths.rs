//! The page on screens of several widths, in Debian's Chromium if it is installed: what is broken, and
//! what is wider than the screen.

use crate::support::events::local;
use crate::support::observed::{CONFIG, ObservedDaemon};
use ledger::Qos;
use machines::synthetic::{Machine, Numbering};
use serve::page::{self, Reader};
use std::process::Command;

/// A line for each word that has several lines, unless it is longer than one, and for each width in which
/// the page, its list or, from 1,024 pixels on, its diagram is wider than the screen.
const MEASURE: &str = r#"
const found = [];
async function measure(width) {
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:2000px;border:0`;
  frame.srcdoc = page;
  const loaded = new Promise((resolve) => (frame.onload = resolve));
  document.body.append(frame);
  await loaded;
  const shown = frame.contentDocument;
  for (const one of shown.querySelectorAll("details")) one.open = true;
  const areas = width < 1024 ? ["html", ".scroll"] : ["html", ".scroll", "figure"];
  for (const area of areas) {
    const one = shown.querySelector(area);
    if (one.scrollWidth > one.clientWidth) found.push(`${width}: ${area} is ${one.scrollWidth} wide`);
  }
  const texts = shown.createTreeWalker(shown.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (text.parentElement.closest("svg")) continue;
    for (const word of text.data.matchAll(/[^\s\/,-]+/g)) {
      const range = shown.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((line) => Math.round(line.top)));
      if (lines.size > 1 && word[0].length <= 28) found.push(`${width}: ${word[0]} is broken`);
    }
  }
  frame.remove();
}
(async () => {
  for (const width of [390, 768, 1024, 1280]) await measure(width);
  document.querySelector("pre").textContent = `measured: ${found.join("; ")}`;
})();
"#;

#[tokio::test]
async fn no_word_is_broken_and_nothing_is_wider_than_the_screen() {
    if Command::new("chromium").arg("--version").output().is_err() {
        println!("skipped: the widths of the page: chromium is not installed");
        return;
    }
    local(async {
        let machine = Machine {
            sockets: 2,
            nodes: 4,
            caches: 8,
            cores: 64,
            numbering: Numbering::Interleaved,
            ..Machine::default()
        };
        let daemon = ObservedDaemon::connected_on(&machine, CONFIG).await;
        for pod in 0..30 {
            let name = format!("matching-engine-7d9f6c5b8-x2x4q-{pod}");
            daemon.create(&name, Qos::Guaranteed, 1000 + pod % 4 * 1000).await.unwrap();
            daemon.create(&format!("web-{pod}"), Qos::Burstable, 100).await.unwrap();
        }
        daemon.create(&"p".repeat(253), Qos::Guaranteed, 2000).await.unwrap();
        daemon.create(&"x".repeat(253), Qos::Guaranteed, 600_000).await.unwrap_err();
        let html = page::page(Reader::Entitled(&daemon.status().await));
        let html = serde_json::to_string(&html).unwrap().replace("</", "<\\/");
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("measure.html");
        let measure = format!("<pre></pre><script>const page = {html};{MEASURE}</script>");
        std::fs::write(&file, measure).unwrap();
        let output = Command::new("timeout")
            .args(["60", "chromium", "--headless=new", "--no-sandbox", "--disable-gpu"])
            .args(["--no-first-run", "--disable-dev-shm-usage", "--virtual-time-budget=20000"])
            .arg(format!("--user-data-dir={}", scratch.path().join("profile").display()))
            .args(["--dump-dom", &format!("file://{}", file.display())])
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&output.stdout);
        let (_, found) = dom.split_once("<pre>").unwrap();
        assert_eq!(found.split("</pre>").next(), Some("measured: "));
    })
    .await;
}
