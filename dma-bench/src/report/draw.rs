//! [`Plot`]: a chart, which is drawn for a page or as an SVG or PNG file.

use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{TextStyle, register_font};

use super::axis::Axis;
use super::theme::{DIM, GRID, INK, PAPER, Theme, hex};
use crate::units::printable;

#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// Name of the plot's file and anchor.
    pub(super) id: String,
    pub(super) title: String,
    /// Explanation of the lines and bands.
    pub(super) note: String,
    /// True if the figures are a model's.
    pub(super) model: bool,
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// The curves, at most six.
    pub(super) series: Vec<Series>,
}

#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// The points, sorted by x.
    pub(super) points: Vec<Point>,
    /// True for a reference, with which other curves are compared.
    pub(super) reference: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Lower and upper end of the band, if there is one.
    pub(super) band: Option<(f64, f64)>,
}

/// Width and height of a chart in pixels, without title and legend.
const CHART: (u32, u32) = (640, 380);
/// Height of the title and the note in a file, in pixels.
const HEAD: u32 = 64;
/// Width of the legend in a file, in pixels.
const LEGEND: u32 = 440;
/// Font size of charts, in pixels. Pages on narrow screens show it at half that size.
const FONT: i32 = 17;

type Drawn = Result<(), String>;

fn text<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> String {
    format!("plotting: {error}")
}

/// Registers the font with the plotting library, so that text looks the same on machines without fonts.
fn fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // This fails only for data that is not a font.
        let _ = register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
        let _ = register_font("sans-serif", FontStyle::Bold, dejavu::sans::bold());
    });
}

/// The colours of a drawing, and its scale: the number of pixels for each pixel of [`CHART`].
struct Pen<'a> {
    theme: &'a Theme,
    scale: i32,
}

impl Pen<'_> {
    fn font(&self, size: i32, color: RGBColor) -> TextStyle<'static> {
        ("sans-serif", size * self.scale).into_font().color(&color)
    }

    fn px(&self, length: u32) -> u32 {
        length * self.scale.unsigned_abs()
    }

    /// Returns the colour of a curve. A reference curve has the colour of text.
    fn color(&self, plot: &Plot, at: usize) -> RGBColor {
        let engines = plot.series[..at].iter().filter(|s| !s.reference).count();
        if plot.series[at].reference { self.theme.color(INK) } else { self.theme.series(engines) }
    }
}

impl Plot {
    /// Returns the name of a curve's colour in style sheets.
    pub(super) fn variable(&self, at: usize) -> String {
        let theme = Theme::stand_in();
        let color = Pen { theme: &theme, scale: 1 }.color(self, at);
        let named = theme.named().find(|(_, c)| *c == color);
        named.map_or_else(String::new, |(name, _)| format!("--plot-{name}"))
    }

    /// Returns the chart as SVG for a page. The page contains the title and the legend, and its style
    /// sheet sets the colours.
    pub(super) fn inline(&self) -> Result<String, String> {
        fonts();
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, CHART).into_drawing_area();
        let theme = Theme::stand_in();
        self.chart(&area, &Pen { theme: &theme, scale: 1 })?;
        area.present().map_err(text)?;
        drop(area);
        for (name, color) in theme.named() {
            svg = svg.replace(&hex(color), &format!("var(--plot-{name})"));
        }
        let (_, body) = svg.split_once("<svg ").ok_or("plotting: no SVG")?;
        let label = escape(&format!("{}. {}", self.title, self.note));
        Ok(format!("<svg role=\"img\" aria-label=\"{label}\" {body}"))
    }

    pub(super) fn svg(&self, theme: &Theme) -> Result<String, String> {
        fonts();
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, (CHART.0 + LEGEND, CHART.1 + HEAD)).into_drawing_area();
        self.picture(&area, &Pen { theme, scale: 1 })?;
        area.present().map_err(text)?;
        drop(area);
        Ok(svg)
    }

    /// Returns a whole picture, with title and legend, as PNG at twice the size.
    pub(super) fn png(&self, theme: &Theme) -> Result<Vec<u8>, String> {
        fonts();
        let (width, height) = ((CHART.0 + LEGEND) * 2, (CHART.1 + HEAD) * 2);
        let mut pixels = vec![0; width as usize * height as usize * 3];
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        self.picture(&area, &Pen { theme, scale: 2 })?;
        drop(area);
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|e| e.to_string())?;
        writer.write_image_data(&pixels).map_err(|e| e.to_string())?;
        writer.finish().map_err(|e| e.to_string())?;
        Ok(bytes)
    }

    /// Draws title, chart and legend.
    fn picture<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, pen: &Pen<'_>) -> Drawn {
        area.fill(&pen.theme.color(PAPER)).map_err(text)?;
        let s = pen.scale;
        let (head, body) = area.split_vertically(pen.px(HEAD));
        let bold = ("sans-serif", 18 * s, FontStyle::Bold).into_font().color(&pen.theme.color(INK));
        head.draw(&Text::new(printable(&self.title), (14 * s, 12 * s), bold)).map_err(text)?;
        let note = pen.font(13, pen.theme.color(DIM));
        head.draw(&Text::new(printable(&self.note), (14 * s, 38 * s), note)).map_err(text)?;
        let (chart, legend) = body.split_horizontally(pen.px(CHART.0));
        self.chart(&chart, pen)?;
        for (at, series) in self.series.iter().enumerate() {
            let y = (30 + 26 * at as i32) * s;
            let style = pen.color(self, at).stroke_width(pen.px(2));
            legend.draw(&PathElement::new(vec![(4 * s, y), (28 * s, y)], style)).map_err(text)?;
            self.dot(&legend, pen, at, (16 * s, y))?;
            let name =
                Text::new(printable(&series.name), (36 * s, y - 8 * s), pen.font(14, pen.theme.color(INK)));
            legend.draw(&name).map_err(text)?;
        }
        Ok(())
    }

    /// Draws axes, bands and curves.
    fn chart<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, pen: &Pen<'_>) -> Drawn {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let xs = self.x.ticks(points().map(|p| p.x));
        let bands = points().filter_map(|p| p.band).flat_map(|(low, high)| [low, high]);
        let ys = self.y.ticks(points().map(|p| p.y).chain(bands));
        let mut chart = ChartBuilder::on(area)
            .margin_left(pen.px(4))
            .margin_right(pen.px(26))
            .margin_top(pen.px(14))
            .margin_bottom(pen.px(4))
            .x_label_area_size(pen.px(58))
            .y_label_area_size(pen.px(88))
            .build_cartesian_2d(xs, ys)
            .map_err(text)?;
        chart
            .configure_mesh()
            .bold_line_style(pen.theme.color(GRID).stroke_width(pen.px(1)))
            .light_line_style(TRANSPARENT)
            .axis_style(pen.theme.color(DIM).stroke_width(pen.px(1)))
            .x_desc(self.x.label.clone())
            .y_desc(self.y.label.clone())
            .axis_desc_style(pen.font(FONT, pen.theme.color(INK)))
            .label_style(pen.font(FONT - 1, pen.theme.color(DIM)))
            .x_label_formatter(&|v| (self.x.format)(self.x.value(*v)))
            .y_label_formatter(&|v| (self.y.format)(self.y.value(*v)))
            .draw()
            .map_err(text)?;
        let place = |x: f64, y: f64| (self.x.place(x), self.y.place(y));
        for (at, series) in self.series.iter().enumerate() {
            let color = pen.color(self, at);
            for run in series.points.split(|p| p.band.is_none()).filter(|run| run.len() > 1) {
                let low = run.iter().filter_map(|p| Some(place(p.x, p.band?.0)));
                let high = run.iter().rev().filter_map(|p| Some(place(p.x, p.band?.1)));
                let band: Vec<(f64, f64)> = low.chain(high).collect();
                chart.draw_series(std::iter::once(Polygon::new(band, color.mix(0.15)))).map_err(text)?;
            }
            let line: Vec<(f64, f64)> = series.points.iter().map(|p| place(p.x, p.y)).collect();
            let style = color.stroke_width(pen.px(if series.reference { 3 } else { 2 }));
            chart.draw_series(LineSeries::new(line.iter().copied(), style)).map_err(text)?;
            for point in line {
                let (x, y) = chart.backend_coord(&point);
                let (left, top) = area.get_base_pixel();
                self.dot(area, pen, at, (x - left, y - top))?;
            }
        }
        Ok(())
    }

    /// Draws a point of a curve. Consecutive curves have points of different shapes.
    fn dot<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        pen: &Pen<'_>,
        at: usize,
        (x, y): (i32, i32),
    ) -> Drawn {
        let (r, fill) = (4 * pen.scale, pen.color(self, at).filled());
        let drawn = match at % 3 {
            _ if self.series[at].reference => {
                area.draw(&Rectangle::new([(x - r, y - r), (x + r, y + r)], fill))
            }
            0 => area.draw(&Circle::new((x, y), r, fill)),
            1 => area.draw(&TriangleMarker::new((x, y), r + r / 2, fill)),
            _ => area.draw(&Cross::new((x, y), r, fill.stroke_width(pen.px(2)))),
        };
        drawn.map_err(text)
    }
}

fn escape(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}
