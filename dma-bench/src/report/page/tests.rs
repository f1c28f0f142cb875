//! Tests of the page.

use super::*;
use crate::plan::{Cell, Op};
use crate::results::tests::sample;

#[test]
fn the_page_is_whole_small_and_loads_nothing() {
    let page = page(&sample()).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(page.len() < 2 << 20, "{} bytes", page.len());
    for outside in ["<script", "src=", "href=\"http", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let plots = curves::plots(&sample()).len();
    assert!(plots >= 7, "{plots}");
    assert_eq!(page.matches("<svg").count(), plots, "every plot once");
    assert!(page.contains("Not measured.</b>") && page.contains("dsa (a public &lt;source&gt;)"));
}

#[test]
fn what_a_file_says_is_never_markup() {
    let mut results = sample();
    for m in &mut results.cells {
        if m.cell.engine == "cpu" {
            m.cell.engine = "<img onerror=alert(1)>&\"'".to_owned();
        }
    }
    results.engines[1].name = "<img onerror=alert(1)>&\"'".to_owned();
    results.machine.cpu = "</title><script>".to_owned();
    results.command.push("</pre><script>".to_owned());
    let page = page(&results).unwrap();
    assert!(!page.contains("<img") && !page.contains("<script"), "escaped");
    assert!(page.contains("&lt;img"));
}

/// Every link leads somewhere.
fn links_lead(page: &str) {
    for link in page.split("href=\"#").skip(1) {
        let to = link.split('"').next().unwrap();
        assert_eq!(page.matches(&format!("id=\"{to}\"")).count(), 1, "#{to}");
    }
}

#[test]
fn links_lead_somewhere() {
    links_lead(&page(&sample()).unwrap());
    let mut models = sample();
    models.cells.retain(|m| m.model);
    models.engines.retain(|e| e.model.is_some());
    let text = page(&models).unwrap();
    links_lead(&text);
    assert!(!text.contains("#measured") && text.contains("#models\">") && text.contains("#figures\">"));
    models.cells.clear();
    links_lead(&page(&models).unwrap());
    // A table without a plot is measured as well.
    let mut one = sample();
    one.cells.retain(|m| m.cell.size == 64 && !m.model);
    let text = page(&one).unwrap();
    links_lead(&text);
    assert!(text.contains("#measured"));
}

#[test]
fn a_page_without_a_plot_says_why() {
    let said = |results: &Results| page(results).unwrap().matches(NO_PLOT).count();
    assert_eq!(said(&sample()), 0);
    let mut one = sample();
    one.cells.retain(|m| m.cell.size == 64);
    let text = page(&one).unwrap();
    assert!(!text.contains("<figure"));
    assert_eq!(said(&one), 2, "measured and models");
    let heading = text.split("<h2 id=\"measured\">Measured</h2>").nth(1).unwrap();
    assert!(heading.trim_start().starts_with("<p class=\"dim\">There is nothing to plot"), "not empty");
    one.cells.retain(|m| !m.model);
    assert_eq!(said(&one), 1, "models without figures have nothing to plot anyway");
}

#[test]
fn rows_can_be_told_apart() {
    let mut results = sample();
    let like = results.cells[5].clone();
    results.cells = vec![like.clone(), like.clone(), like.clone(), like];
    results.cells[1].cell.queues = 2;
    results.cells[2].cell = Cell { op: Op::Sg, segments: 2, ..results.cells[0].cell.clone() };
    results.cells[3].cell = Cell { op: Op::Sg, segments: 8, ..results.cells[0].cell.clone() };
    results.crossovers[0].queues = 3;
    let page = page(&results).unwrap();
    for cell in
        ["<td>sg cold 2</td>", "<td>sg cold 8</td>", "<td class=\"n\">1 on 2</td>", "<td>1 by 1 on 3</td>"]
    {
        assert_eq!(page.matches(cell).count(), 1, "{cell}");
    }
    for head in ["p50", "p90", "p99", "p99.9", "max"] {
        assert_eq!(page.matches(&format!("<th class=\"n\">{head}</th>")).count(), 1, "{head}");
    }
}

#[test]
fn a_rate_that_is_missed_is_marked() {
    let mut results = sample();
    results.campaign.rate = Some(1e9);
    let page = page(&results).unwrap();
    assert!(page.contains(" % of the rate</td>") && page.contains("The rate was missed in 8 of 8 cells"));
}

#[test]
fn a_long_list_of_what_is_not_drawn_is_folded() {
    let mut plot = curves::plots(&sample()).remove(0);
    let said = |plot: &Plot| left_out(plot);
    assert_eq!(said(&plot), "");
    plot.left_out = (0..12).map(|n| format!("<{n}>")).collect();
    assert!(
        said(&plot).contains("Not drawn, for want of room: &lt;0&gt;; ")
            && !said(&plot).contains("<details>")
    );
    plot.left_out.push("another".to_owned());
    assert!(
        said(&plot).contains("<summary>13 curves are not drawn")
            && said(&plot).contains("; another</details>")
    );
}
