//! The page in a real browser: it is laid out, in light and in dark, without errors and with nothing that is cut off. Skipped, with a word, where
//! there is no browser.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).flat_map(|f| BROWSERS.map(|b| f.join(b))).find(|p| p.is_file())
}

/// What the browser prints for a page.
fn dump(browser: &Path, profile: &Path, page: &Path, dark: bool) -> String {
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=2000",
            "--window-size=1100,900",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = command.output().expect("the browser starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Looks at the page from inside and writes what it finds into the title. The page itself runs no scripts.
const PROBE: &str = r#"<script>addEventListener("load", () => {
  const shown = e => e.getClientRects().length > 0;
  const figures = [...document.querySelectorAll("figure")];
  const all = figures.flatMap(f => [...f.querySelectorAll("svg")]), svgs = all.filter(shown);
  const paper = svg => { for (let e = svg; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor; if (c !== "rgba(0, 0, 0, 0)") return c; } };
  const colors = {};
  for (const e of svgs.flatMap(s => [...s.querySelectorAll("g > *")])) {
    const style = getComputedStyle(e), role = e.parentElement.getAttribute("class");
    (colors[role] ??= []).push(e.tagName === "path" ? style.stroke : style.fill);
  }
  for (const role in colors) colors[role] = [...new Set(colors[role])];
  const lum = c => { const [r, g, b] = c.match(/[\d.]+/g).map(Number); return (r * 3 + g * 6 + b) / 2550; };
  const body = getComputedStyle(document.body);
  const outside = svgs.flatMap(s => {
    const box = s.getBoundingClientRect();
    return [...s.querySelectorAll("text")].filter(t => t.textContent.trim()).filter(t => {
      const b = t.getBoundingClientRect();
      return b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1;
    });
  });
  document.title = JSON.stringify({
    figures: figures.length, all: all.length, svgs: svgs.length, colors, texts: svgs.reduce((n, s) => n + s.querySelectorAll("text").length, 0),
    outside: outside.map(t => t.textContent.trim()), tables: document.querySelectorAll("table").length,
    wide: document.documentElement.scrollWidth - innerWidth, flat: svgs.filter(s => s.getBoundingClientRect().height < 300).length,
    paper: lum(body.backgroundColor), ink: lum(body.color),
    paperOfPlot: lum(paper(svgs[0])) });
});</script></body>"#;

#[test]
fn the_page_looks_right_in_a_browser() {
    let Some(browser) = browser() else {
        println!("skipped: no browser; there is none of {} on the PATH", BROWSERS.join(", "));
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let status = Command::new(env!("CARGO_BIN_EXE_dma-bench"))
        .args([
            "run",
            "-e",
            "cpu",
            "-e",
            "sim:profile=bluefield3",
            "-o",
            "64..1M*4",
            "-q",
            "1,4,16",
            "-r",
            "3",
            "-t",
            "0.003",
        ])
        .args(["--warm-up", "0.001", "--footprint", "4M", "--quiet", "--report"])
        .arg(&page)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let text = fs::read_to_string(&page).unwrap();
    // For the probe's sake; without it the page's own policy keeps scripts from running.
    let probed = text.replacen("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'", 1);
    let probed = probed.replacen("</body>", PROBE, 1);
    assert!(probed.len() > text.len());
    fs::write(&page, probed).unwrap();
    let mut colors = Vec::new();
    for dark in [false, true] {
        let dom = dump(&browser, folder.path(), &page, dark);
        let title = dom.split("<title>").nth(1).and_then(|t| t.split("</title>").next()).unwrap_or_default();
        let Ok(found) = serde_json::from_str::<serde_json::Value>(&title.replace("&amp;", "&")) else {
            panic!("the browser did not lay the page out: {title:?}, {} bytes", dom.len());
        };
        let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
        assert!(number("figures") >= 7.0, "{found}");
        assert_eq!(number("all"), number("figures"), "each plot is there once: {found}");
        assert_eq!(number("svgs"), number("figures"), "and shown: {found}");
        assert!(number("texts") > number("figures") * 10.0, "plots have words: {found}");
        assert_eq!(found["outside"].as_array().map(Vec::len), Some(0), "no text is cut off: {found}");
        assert_eq!(number("flat"), 0.0, "{found}");
        assert!(number("wide") <= 0.0, "the page does not scroll sideways: {found}");
        let (paper, ink) = (number("paper"), number("ink"));
        assert!(
            if dark { paper < 0.2 && ink > 0.8 } else { paper > 0.9 && ink < 0.3 },
            "dark {dark}: {found}"
        );
        let plot = number("paperOfPlot");
        assert!(if dark { plot < 0.2 } else { plot > 0.9 }, "the plots go with the page: {found}");
        colors.push(colors_of_roles(&found["colors"]));
    }
    let (light, dark) = (&colors[0], &colors[1]);
    assert!(light.len() > 8, "axes, curves and references: {light:?}");
    assert!(light.keys().eq(dark.keys()), "{light:?} {dark:?}");
    for (role, color) in light {
        assert_ne!(color, &dark[role], "{role} goes with the page");
    }
    // Curves are told apart by their colour, in both.
    for of in [light, dark] {
        let curves: Vec<_> = of.iter().filter(|(role, _)| role.starts_with("curve-")).collect();
        let distinct: BTreeSet<_> = curves.iter().map(|(_, color)| color).collect();
        assert!(curves.len() >= 3 && distinct.len() == curves.len(), "{of:?}");
    }
}

/// The colour of each role of the plots: one, and none that the style sheet does not name.
fn colors_of_roles(found: &serde_json::Value) -> BTreeMap<String, String> {
    let one = |(role, colors): (&String, &serde_json::Value)| {
        let [color] = &colors.as_array().expect("a list")[..] else { panic!("{role} has {colors}") };
        let color = color.as_str().unwrap_or_default();
        assert!(
            color.starts_with("rgb(") && color != "rgb(0, 0, 0)",
            "{role} has {color}, which nobody chose"
        );
        (role.clone(), color.to_owned())
    };
    found.as_object().expect("roles").iter().map(one).collect()
}
