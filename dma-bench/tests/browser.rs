//! Tests pages in a real browser, narrow and wide, light and dark: no elements overlap, no text is cut
//! off, and all text contrasts with its background. Skipped with a message on machines without a browser.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).flat_map(|f| BROWSERS.map(|b| f.join(b))).find(|p| p.is_file())
}

/// Script that examines a page in a frame of a given width, and writes its findings into the title. A
/// frame is used because a browser window cannot be as narrow as a phone.
const PROBE: &str = r##"<!doctype html><meta charset="utf-8"><body style="margin:0"><script>
const frame = document.createElement("iframe");
frame.style = `border:0;width:${WIDTH}px;height:900px`;
frame.srcdoc = PAGE;
frame.onload = () => {
  const doc = frame.contentDocument, win = frame.contentWindow, found = { overlaps: [], cut: [], contrast: [], words: 0 };
  const svgs = [...doc.querySelectorAll("svg")];
  doc.querySelectorAll("details").forEach(d => d.open = true);
  const color = c => (c.match(/[\d.]+/g) ?? [0, 0, 0]).map(Number);
  const light = c => {
    const [r, g, b] = color(c).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = e => { for (; e; e = e.parentElement) {
    const c = win.getComputedStyle(e).backgroundColor; if (c !== "rgba(0, 0, 0, 0)") return c; }
    return "rgb(255, 255, 255)"; };
  const texts = [], walk = doc.createTreeWalker(doc.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, e = node.parentElement, range = doc.createRange();
    if (!node.textContent.trim()) continue;
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) if (box.width > 0) texts.push({ e, box, text: node.textContent.trim() });
  }
  found.words = texts.length;
  for (const { e, box, text } of texts) {
    const svg = e.closest("svg"), scrolls = e.closest(".wide, pre"), style = win.getComputedStyle(e);
    const ink = light(svg ? style.fill : style.color), ground = light(paper(e));
    const ratio = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    if (ratio < 4.5) found.contrast.push(`${text}: ${ratio.toFixed(2)}`);
    if (!scrolls && (box.right > WIDTH + 1 || box.left < -1)) found.cut.push(text);
    if (svg) {
      const s = svg.getBoundingClientRect();
      if (box.left < s.left - 1 || box.right > s.right + 1 || box.top < s.top - 1 || box.bottom > s.bottom + 1) found.cut.push(text);
    }
  }
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 2 || b.bottom <= a.top + 2;
  const loose = texts.filter(t => !t.e.closest(".wide, pre"));
  for (let i = 0; i < loose.length; i++) for (let j = i + 1; j < loose.length; j++)
    if (!apart(loose[i].box, loose[j].box)) found.overlaps.push(`${loose[i].text} / ${loose[j].text}`);
  const table = [...doc.querySelectorAll("table.sortable")].find(t => t.tBodies[0].rows.length > 4);
  const keys = () => [...table.tBodies[0].rows].map(r => Number(r.cells[4].dataset.key));
  const sorted = (up, k) => k.every((v, i) => i === 0 || (up ? k[i - 1] <= v : k[i - 1] >= v));
  table.tHead.rows[0].cells[4].firstChild.click();
  found.up = sorted(true, keys());
  table.tHead.rows[0].cells[4].firstChild.click();
  found.down = sorted(false, keys());
  found.figures = svgs.length;
  found.wide = doc.documentElement.scrollWidth - WIDTH;
  found.paper = light(win.getComputedStyle(doc.body).backgroundColor);
  found.first = [...doc.querySelectorAll(".summary p")].every(p => p.getBoundingClientRect().bottom < 900);
  found.small = svgs.filter(s => s.getBoundingClientRect().width < Math.min(300, WIDTH - 80)).length;
  document.title = JSON.stringify(found);
};
document.body.append(frame);
</script>"##;

/// Returns the probe's findings on a page.
fn look(browser: &Path, folder: &Path, page: &Path, width: u32, dark: bool) -> Value {
    // A script ends at the first `</script`, even within a string.
    let text = serde_json::to_string(&fs::read_to_string(page).unwrap()).unwrap().replace("</", "<\\/");
    let probe = folder.join("probe.html");
    fs::write(&probe, PROBE.replace("PAGE", &text).replace("WIDTH", &width.to_string())).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"])
        .arg("--window-size=1400,1000")
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .arg(format!("file://{}", probe.display()))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .expect("the browser starts");
    let dom = String::from_utf8_lossy(&output.stdout);
    let title = dom.split("<title>").nth(1).and_then(|t| t.split("</title>").next()).unwrap_or_default();
    let title = title.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&title).unwrap_or_else(|e| {
        panic!("the browser did not lay the page out: {e}: {title:?}, {} bytes", dom.len())
    })
}

fn bench(words: &[&str]) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_dma-bench"));
    assert!(program.args(words).stdout(Stdio::null()).status().unwrap().success(), "{words:?}");
}

#[test]
fn pages_look_right_in_a_browser() {
    let Some(browser) = browser() else {
        println!("skipped: no browser; there is none of {} on the PATH", BROWSERS.join(", "));
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (page, other, results) = (path("page.html"), path("compared.html"), path("r.json"));
    let engines =
        ["run", "-e", "cpu", "-e", "sim:profile=bluefield3", "-e", "sim:profile=dsa", "--published"];
    let cells = ["-o", "64..1M*4", "-q", "1,4,16", "-a", "cold,hot", "--samples", "20", "-t", "0.004"];
    let rest = ["--warm-up", "0.001", "--footprint", "4M", "--quiet", "--report", &page, "--json", &results];
    bench(&[&engines[..], &cells, &rest].concat());
    bench(&["compare", &results, &results, "--report", &other]);
    for (page, figures) in [(&page, 12), (&other, 0)] {
        for (width, dark) in [(400, false), (400, true), (1280, false), (1280, true)] {
            let found = look(&browser, folder.path(), Path::new(page), width, dark);
            let what = format!("{page}, {width} pixels, dark {dark}");
            for wrong in ["overlaps", "cut", "contrast"] {
                let all = found[wrong].as_array().unwrap();
                assert!(all.is_empty(), "{what}: {wrong}: {:?}", &all[..all.len().min(10)]);
            }
            let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
            assert!(number("words") > 100.0 && number("figures") >= f64::from(figures), "{what}: {found}");
            assert!(number("wide") <= 0.0, "{what} scrolls sideways: {found}");
            assert_eq!(number("small"), 0.0, "{what}: plots scale: {found}");
            assert!(found["up"] == true && found["down"] == true, "{what}: columns are sorted: {found}");
            assert_eq!(found["first"], true, "{what}: the summary is on the first screen");
            assert!(if dark { number("paper") < 0.1 } else { number("paper") > 0.9 }, "{what}: {found}");
        }
    }
}
