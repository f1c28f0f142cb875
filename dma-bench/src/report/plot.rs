//! [`Plot`]: curves on logarithmic axes, drawn as SVG or PNG, for light and for dark.

use std::sync::Once;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::register_font;

use crate::output;

/// What is drawn.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// A name for files and anchors.
    pub(super) id: String,
    /// The title.
    pub(super) title: String,
    /// What the bands are, or whose figures these are.
    pub(super) note: String,
    /// What the models are made from, of a plot of models.
    pub(super) models: Vec<String>,
    /// What goes to the right.
    pub(super) x: Axis,
    /// What goes up.
    pub(super) y: Axis,
    /// The curves.
    pub(super) series: Vec<Series>,
    /// Places on the x axis that are marked: where, with what text, and in which curve's colour.
    pub(super) marks: Vec<(f64, String, usize)>,
    /// The names of curves that there was no room for.
    pub(super) left_out: Vec<String>,
}

/// An axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// What it shows, with its unit.
    pub(super) label: String,
    /// How its values are written.
    pub(super) format: fn(f64) -> String,
    /// From one tick to the next: 2 or 10.
    pub(super) base: f64,
}

/// A curve.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Its name.
    pub(super) name: String,
    /// Its points by x: the least, the middle, the most.
    pub(super) points: Vec<(f64, [f64; 3])>,
    /// It is what others are compared with.
    pub(super) reference: bool,
}

/// Colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    /// `light` or `dark`.
    pub(super) name: &'static str,
    paper: RGBColor,
    ink: RGBColor,
    dim: RGBColor,
    grid: RGBColor,
    curves: [RGBColor; CURVES],
    references: [RGBColor; REFERENCES],
}

/// The most curves that can be told apart.
pub(super) const CURVES: usize = 8;
/// The most references that can be told apart.
pub(super) const REFERENCES: usize = 3;

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Style {
    color: RGBColor,
    /// How long its dashes are and what lies between them, if it has any.
    dash: Option<(i32, i32)>,
    dot: Dot,
}

/// What a curve's points are drawn as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dot {
    Circle,
    Square,
    Triangle,
}

/// The dashes and dots of references. The first is the one that most are compared with.
const DASHES: [((i32, i32), Dot); REFERENCES] =
    [((9, 5), Dot::Circle), ((3, 5), Dot::Square), ((16, 4), Dot::Triangle)];

/// For light pages: Okabe and Ito's colours, told apart by the colour-blind, the light ones darkened.
pub(super) const LIGHT: Theme = Theme {
    name: "light",
    paper: RGBColor(255, 255, 255),
    ink: RGBColor(31, 35, 40),
    dim: RGBColor(89, 99, 110),
    grid: RGBColor(225, 229, 234),
    curves: [
        RGBColor(0, 114, 178),
        RGBColor(213, 94, 0),
        RGBColor(0, 130, 95),
        RGBColor(170, 68, 153),
        RGBColor(176, 125, 0),
        RGBColor(60, 150, 200),
        RGBColor(136, 34, 85),
        RGBColor(90, 90, 200),
    ],
    references: [RGBColor(31, 35, 40), RGBColor(89, 99, 110), RGBColor(137, 146, 156)],
};

/// For dark pages: the same hues, lighter.
pub(super) const DARK: Theme = Theme {
    name: "dark",
    paper: RGBColor(22, 27, 34),
    ink: RGBColor(230, 237, 243),
    dim: RGBColor(155, 165, 176),
    grid: RGBColor(46, 53, 62),
    curves: [
        RGBColor(88, 166, 255),
        RGBColor(255, 150, 90),
        RGBColor(63, 200, 150),
        RGBColor(225, 150, 215),
        RGBColor(230, 185, 70),
        RGBColor(130, 205, 245),
        RGBColor(240, 120, 160),
        RGBColor(165, 165, 255),
    ],
    references: [RGBColor(230, 237, 243), RGBColor(155, 165, 176), RGBColor(112, 121, 132)],
};

/// How large a plot is, before it is scaled.
pub(super) const SIZE: (u32, u32) = (980, 500);
const LEGEND: i32 = 235;
/// What is left free to the left and to the right of a chart.
const MARGINS: (i32, i32) = (8, 14);
/// The width of the ticks' labels on the left.
const Y_LABELS: i32 = 64;
/// The size of the labels of marks.
const LABEL: i32 = 12;
/// From the line of a mark to its label.
const BESIDE: i32 = 3;
/// The least between two labels of a row.
const GAP: i32 = 6;
/// From one row of labels to the next.
const ROW: i32 = 14;
/// The most rows of labels.
const ROWS: usize = 6;
/// Where names begin in the legend.
const NAMES: i32 = 50;
const FONT: &str = "sans-serif";

/// Makes the font known to the plotting library, so that text is the same on machines without fonts.
fn fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // It fails only for what is no font.
        let _ = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
        let _ = register_font(FONT, FontStyle::Bold, dejavu::sans::bold());
    });
}

/// Text that an XML file may contain; the library escapes it.
fn clean(text: &str) -> String {
    output::printable(text).replace(['\u{fffe}', '\u{ffff}'], " ")
}

type Drawn = Result<(), String>;

fn text<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> String {
    format!("plotting: {error}")
}

impl Plot {
    /// As an SVG.
    ///
    /// # Errors
    ///
    /// The plotting library fails.
    pub(super) fn svg(&self, theme: &Theme) -> Result<String, String> {
        fonts();
        let mut svg = String::new();
        self.draw(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(), theme, 1)?;
        // It grows and shrinks with the page, and says what it is to those who cannot see it.
        let left_out = match self.left_out.join(", ") {
            names if names.is_empty() => names,
            names => format!(" Not drawn: {names}."),
        };
        let models = self.model_lines().join(" ");
        let models = if models.is_empty() { models } else { format!(" {models}.") };
        let name = super::escape(&format!("{}. {}{models}{left_out}", self.title, self.note));
        let (width, height) = SIZE;
        let head = format!("<svg width=\"{width}\" height=\"{height}\"");
        Ok(svg.replacen(&head, &format!("{head} role=\"img\" aria-label=\"{name}\""), 1))
    }

    /// As a PNG, twice as large.
    ///
    /// # Errors
    ///
    /// The plotting library fails.
    pub(super) fn png(&self, theme: &Theme) -> Result<Vec<u8>, String> {
        fonts();
        let (width, height) = (SIZE.0 * 2, SIZE.1 * 2);
        let mut pixels = vec![0; width as usize * height as usize * 3];
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        self.draw(&area, theme, 2)?;
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

    /// What the models are made from, in lines that fit.
    fn model_lines(&self) -> Vec<String> {
        const WIDTH: usize = 150;
        let mut lines: Vec<String> = Vec::new();
        for (at, model) in self.models.iter().enumerate() {
            let begun = if at == 0 { "Models of: " } else { "" };
            let text = format!("{begun}{model}{}", if at + 1 < self.models.len() { ";" } else { "" });
            match lines.last_mut() {
                Some(last) if last.chars().count() + 1 + text.chars().count() <= WIDTH => {
                    last.push(' ');
                    last.push_str(&text);
                }
                _ => lines.push(text),
            }
        }
        lines
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, theme: &Theme, scale: i32) -> Drawn {
        area.fill(&theme.paper).map_err(text)?;
        let font = |size: i32, color: RGBColor| (FONT, size * scale).into_font().color(&color);
        let (width, _) = area.dim_in_pixel();
        let bold = (FONT, 17 * scale, FontStyle::Bold).into_font().color(&theme.ink);
        area.draw(&Text::new(clean(&self.title), (18 * scale, 12 * scale), bold)).map_err(text)?;
        area.draw(&Text::new(clean(&self.note), (18 * scale, 36 * scale), font(13, theme.dim)))
            .map_err(text)?;
        let mut head = 56;
        for line in self.model_lines() {
            area.draw(&Text::new(clean(&line), (18 * scale, head * scale), font(11, theme.dim)))
                .map_err(text)?;
            head += 16;
        }
        let (_, body) = area.split_vertically(head * scale);
        let (left, legend) = body.split_horizontally(width as i32 - LEGEND * scale);

        let xs = self.x.ticks(self.series.iter().flat_map(|s| s.points.iter().map(|p| p.0)));
        let ys = self.y.ticks(self.series.iter().flat_map(|s| s.points.iter().flat_map(|p| p.1)));
        let labels = self.labels(&xs);
        let rows = labels.iter().filter_map(|l| l.place).map(|p| p.1 + 1).max().unwrap_or(0);
        let top = 8 + (ROW * rows).max(28);
        let mut chart = ChartBuilder::on(&left)
            .margin_left(MARGINS.0 * scale)
            .margin_right(MARGINS.1 * scale)
            .margin_bottom(6 * scale)
            .margin_top(top * scale)
            .x_label_area_size(46 * scale)
            .y_label_area_size(Y_LABELS * scale)
            .build_cartesian_2d(xs.clone(), ys.clone())
            .map_err(text)?;
        let (xf, yf) = (self.x.clone(), self.y.clone());
        chart
            .configure_mesh()
            .bold_line_style(theme.grid.stroke_width(scale as u32))
            .light_line_style(TRANSPARENT)
            .axis_style(theme.dim.stroke_width(scale as u32))
            .x_desc(self.x.label.clone())
            .y_desc(self.y.label.clone())
            .axis_desc_style(font(13, theme.ink))
            .label_style(font(13, theme.dim))
            .x_label_formatter(&|v| (xf.format)(xf.value(*v)))
            .y_label_formatter(&|v| (yf.format)(yf.value(*v)))
            .draw()
            .map_err(text)?;

        for label in &labels {
            let (at, words, curve) = &self.marks[label.mark];
            let (x, color) = (self.x.place(*at), self.style(theme, *curve).color);
            let line = [(x, ys.from), (x, ys.to)];
            let stroke = color.stroke_width(scale as u32);
            chart.draw_series(DashedLineSeries::new(line, 5 * scale, 4 * scale, stroke)).map_err(text)?;
            let Some((from, row)) = label.place else { continue };
            let (px, py) = chart.backend_coord(&(x, ys.to));
            let (ox, oy) = body_offset(&left);
            let y = py - oy - (4 + ROW * (row + 1)) * scale;
            let pole = vec![(px - ox, py - oy), (px - ox, y)];
            body.draw(&PathElement::new(pole, stroke)).map_err(text)?;
            body.draw(&Text::new(clean(words), (from * scale, y), font(LABEL, color))).map_err(text)?;
        }
        for (i, series) in self.series.iter().enumerate() {
            let style = self.style(theme, i);
            let color = style.color;
            let at = |which: usize| {
                series.points.iter().map(move |p| (self.x.place(p.0), self.y.place(p.1[which])))
            };
            let mut band: Vec<(f64, f64)> = at(0).collect();
            band.extend(at(2).collect::<Vec<_>>().into_iter().rev());
            if band.len() > 2 {
                chart.draw_series(std::iter::once(Polygon::new(band, color.mix(0.15)))).map_err(text)?;
            }
            let stroke = style.stroke(scale);
            match style.dash {
                Some((dash, gap)) => {
                    chart
                        .draw_series(DashedLineSeries::new(at(1), dash * scale, gap * scale, stroke))
                        .map_err(text)?;
                }
                None => {
                    chart.draw_series(LineSeries::new(at(1), stroke)).map_err(text)?;
                }
            }
            let (ox, oy) = body_offset(&left);
            for p in at(1) {
                let (px, py) = chart.backend_coord(&p);
                style.draw_dot(&left, (px - ox, py - oy), scale)?;
            }
        }
        // It begins below the labels, which may reach above it.
        let hidden = labels.iter().filter(|l| l.place.is_none()).count();
        self.legend(&legend, theme, scale, top, hidden)
    }

    /// Where the labels of the marks go: each to the right of a line that goes up from its mark, in the lowest row where neither it nor its line
    /// meets another. Those for which there is no row have no place.
    fn labels(&self, xs: &Ticks) -> Vec<Label> {
        let sides = (MARGINS.0 + Y_LABELS, SIZE.0 as i32 - LEGEND - MARGINS.1);
        let font = (FONT, LABEL).into_font();
        let mut labels = Vec::new();
        // How far to the right there is room in each row.
        let mut free = [SIZE.0 as i32; ROWS];
        // From the right, for then what is placed later lies to the left of all before it, and of their lines.
        for (mark, (at, words, _)) in self.marks.iter().enumerate().rev() {
            let x = self.x.place(*at);
            if x < xs.from || x > xs.to {
                continue;
            }
            let pole = xs.map(&x, sides);
            let width = font.box_size(&clean(words)).map_or(LABEL * words.len() as i32, |b| b.0 as i32);
            let (from, to) = (pole + BESIDE, pole + BESIDE + width);
            let row = free.iter().position(|end| to + GAP <= *end);
            if let Some(row) = row {
                free[..=row].fill(pole);
            }
            labels.push(Label { mark, place: row.map(|row| (from, row as i32)) });
        }
        labels
    }

    fn legend<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        theme: &Theme,
        scale: i32,
        top: i32,
        hidden: usize,
    ) -> Drawn {
        let style = (FONT, 13 * scale).into_font().color(&theme.ink);
        let mut y = (top - 4) * scale;
        for (i, series) in self.series.iter().enumerate() {
            let curve = self.style(theme, i);
            // As long as two of the longest dashes.
            let line = [(6 * scale, y + 7 * scale), (42 * scale, y + 7 * scale)];
            let stroke = curve.stroke(scale);
            match curve.dash {
                Some((dash, gap)) => {
                    area.draw(&DashedPathElement::new(line, dash * scale, gap * scale, stroke))
                        .map_err(text)?;
                }
                None => area.draw(&PathElement::new(line, stroke)).map_err(text)?,
            }
            curve.draw_dot(area, (24 * scale, y + 7 * scale), scale)?;
            for part in wrapped(&clean(&series.name), 24) {
                area.draw(&Text::new(part, (NAMES * scale, y), style.clone())).map_err(text)?;
                y += 16 * scale;
            }
            y += 6 * scale;
        }
        if !self.left_out.is_empty() {
            let more = format!("and {} not drawn", self.left_out.len());
            area.draw(&Text::new(more, (NAMES * scale, y), style.color(&theme.dim))).map_err(text)?;
            y += 18 * scale;
        }
        if hidden > 0 {
            let more = format!("labels left out: {hidden}");
            area.draw(&Text::new(more, (NAMES * scale, y), style.color(&theme.dim))).map_err(text)?;
        }
        Ok(())
    }

    fn style(&self, theme: &Theme, series: usize) -> Style {
        let reference = self.series.get(series).is_some_and(|s| s.reference);
        let before = self.series.iter().take(series).filter(|s| s.reference == reference).count();
        if reference {
            let (dash, dot) = DASHES[before % REFERENCES];
            Style { color: theme.references[before % REFERENCES], dash: Some(dash), dot }
        } else {
            Style { color: theme.curves[before % CURVES], dash: None, dot: Dot::Circle }
        }
    }
}

impl Style {
    fn stroke(&self, scale: i32) -> ShapeStyle {
        self.color.stroke_width((if self.dash.is_some() { 3 } else { 2 }) * scale as u32)
    }

    fn draw_dot<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        (x, y): (i32, i32),
        scale: i32,
    ) -> Drawn {
        let (r, fill) = (3 * scale, self.color.filled());
        match self.dot {
            Dot::Circle => area.draw(&Circle::new((x, y), r, fill)),
            Dot::Square => area.draw(&Rectangle::new([(x - r, y - r), (x + r, y + r)], fill)),
            Dot::Triangle => area.draw(&TriangleMarker::new((x, y), 5 * scale, fill)),
        }
        .map_err(text)
    }
}

/// Where an area begins in the whole picture.
fn body_offset<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>) -> (i32, i32) {
    let (xs, ys) = area.get_pixel_range();
    (xs.start, ys.start)
}

/// A text in lines of at most `width` characters, cut where there is a space or a comma if possible.
fn wrapped(name: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in name.split_inclusive([' ', ',', ':']) {
        let last = lines.len() - 1;
        if lines[last].chars().count() + word.trim_end().chars().count() > width && !lines[last].is_empty() {
            lines.push(word.to_owned());
        } else {
            lines[last].push_str(word);
        }
    }
    lines.truncate(3);
    lines
}

/// The label of a mark, unscaled, from the left edge of the picture.
#[derive(Clone, Copy, Debug)]
struct Label {
    mark: usize,
    /// Where the text begins, and its row above the chart; `None` if there is no room.
    place: Option<(i32, i32)>,
}

/// An axis in the logarithm, and its ticks.
#[derive(Clone, Debug)]
struct Ticks {
    from: f64,
    to: f64,
    at: Vec<f64>,
}

impl Ranged for Ticks {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value - self.from) / (self.to - self.from);
        limit.0 + (f64::from(limit.1 - limit.0) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.at.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.from..self.to
    }
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        value.max(1e-12).ln() / self.base.ln()
    }

    fn value(&self, place: f64) -> f64 {
        self.base.powf(place)
    }

    /// Finer and finer, where ticks could be from a power of the base to the next, as multiples of the first.
    fn finer(&self) -> impl Iterator<Item = Vec<f64>> {
        let base = self.base as u32;
        let (round, parts): (Vec<Vec<f64>>, &[u32]) = if base > 2 {
            (vec![vec![1.0, 2.0, 5.0], vec![1.0, 1.5, 2.0, 3.0, 5.0, 7.0]], &[2, 5, 10, 20])
        } else {
            (Vec::new(), &[2, 4, 8, 16, 32, 64])
        };
        let even = move |n: &u32| (*n..base * n).map(|i| f64::from(i) / f64::from(*n)).collect();
        round.into_iter().chain(parts.iter().map(even))
    }

    /// Ticks at such multiples of every power of the base. What goes up by twos is counted: it has no ticks between whole numbers.
    fn between(&self, from: f64, to: f64, of: &[f64]) -> Vec<f64> {
        let powers = from.floor() as i32..=to.ceil() as i32;
        let all = powers.flat_map(|power| of.iter().map(move |m| f64::from(power) + self.place(*m)));
        let whole = |t: f64| (self.value(t) - self.value(t).round()).abs() < 1e-6 * self.value(t);
        all.filter(|t| (from..=to).contains(t) && (self.base > 2.0 || whole(*t))).collect()
    }

    /// All values with a little room, and a tick at every power of the base, fewer if those are many, and more if they are not three.
    fn ticks(&self, values: impl Iterator<Item = f64>) -> Ticks {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| *v > 0.0).map(|v| self.place(v)) {
            (from, to) = (from.min(value), to.max(value));
        }
        if from > to {
            (from, to) = (0.0, 1.0);
        }
        let room = ((to - from) * 0.03).max(0.05);
        (from, to) = (from - room, to + room);
        let steps = (to - from).max(1.0);
        let every = (steps / 10.0).ceil();
        let mut at: Vec<f64> = Vec::new();
        let mut tick = (from / every).ceil() * every;
        while tick <= to {
            at.push(tick);
            tick += every;
        }
        if at.len() < 3
            && let Some(finer) = self.finer().map(|of| self.between(from, to, &of)).find(|at| at.len() >= 3)
        {
            at = finer;
        }
        Ticks { from, to, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_readable_ticks() {
        let axis = |base| Axis { label: String::new(), format: crate::units::digits, base };
        let ticks = axis(2.0).ticks([64.0, 4_194_304.0].into_iter());
        assert!(ticks.at.len() >= 5 && ticks.at.len() <= 11, "{:?}", ticks.at);
        assert!(ticks.from < 6.0 && ticks.to > 22.0);
        let ticks = axis(10.0).ticks([3.0, 9.0].into_iter());
        let values: Vec<f64> = ticks.at.iter().map(|t| axis(10.0).value(*t).round()).collect();
        assert_eq!(values, [3.0, 5.0, 7.0, 10.0]);
        assert_eq!(axis(10.0).ticks(std::iter::empty()).at.len(), 4);
    }

    #[test]
    fn axes_have_three_ticks_and_more() {
        let axis = |base| Axis { label: String::new(), format: crate::units::digits, base };
        let ticks = |base, from, to| {
            let (axis, ticks) = (axis(base), axis(base).ticks([from, to].into_iter()));
            assert!(ticks.at.iter().all(|t| (ticks.from..=ticks.to).contains(t)), "{ticks:?}");
            ticks.at.iter().map(|t| (axis.value(*t) * 1e6).round() / 1e6).collect::<Vec<_>>()
        };
        assert_eq!(ticks(10.0, 0.3, 1.2), [0.3, 0.5, 0.7, 1.0]);
        assert_eq!(ticks(10.0, 0.5, 2.0), [0.5, 1.0, 2.0]);
        assert_eq!(ticks(2.0, 4096.0, 8192.0), [4096.0, 6144.0, 8192.0]);
        // From one value to a hundred times as much, all of them at the shortest.
        for step in 0..300 {
            let from = 0.1 * 10_f64.powf(f64::from(step) / 60.0);
            for times in [1.0, 1.01, 1.1, 1.3, 1.7, 2.0, 3.0, 5.0, 8.0, 12.0, 30.0, 100.0] {
                for (base, from) in [(10.0, from), (2.0, (from * 1600.0).round())] {
                    let ticks = ticks(base, from, from * times);
                    assert!((3..=13).contains(&ticks.len()), "{base}: {ticks:?} from {from}, {times} times");
                    let labels: std::collections::HashSet<_> =
                        ticks.iter().map(|t| crate::units::digits(*t)).collect();
                    assert!(base == 2.0 || labels.len() == ticks.len(), "{ticks:?}: {labels:?}");
                }
            }
        }
    }

    /// So many curves and references that rise, one above the other.
    fn plot(curves: usize, references: usize) -> Plot {
        let axis = |base| Axis { label: "axis".to_owned(), format: crate::units::digits, base };
        let series = |reference: bool| {
            move |i: usize| {
                let name = format!("{} {i}", if reference { "reference" } else { "curve" });
                let points = [64.0, 4096.0, 65_536.0].map(|x: f64| (x, [x.sqrt() * (i + 1) as f64; 3]));
                Series { name, points: points.to_vec(), reference }
            }
        };
        Plot {
            id: "a".to_owned(),
            title: "title".to_owned(),
            note: "note".to_owned(),
            models: Vec::new(),
            x: axis(2.0),
            y: axis(10.0),
            series: (0..references).map(series(true)).chain((0..curves).map(series(false))).collect(),
            marks: Vec::new(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn curves_of_a_plot_look_different() {
        for theme in [LIGHT, DARK] {
            let plot = plot(CURVES, REFERENCES);
            let styles: Vec<_> = (0..plot.series.len()).map(|i| plot.style(&theme, i)).collect();
            for (i, a) in styles.iter().enumerate() {
                for b in &styles[..i] {
                    assert_ne!(a.color, b.color, "{}: {a:?}, {b:?}", theme.name);
                    let references = a.dash.is_some() && b.dash.is_some();
                    assert!(!references || (a.dash != b.dash && a.dot != b.dot), "{a:?}, {b:?}");
                }
                assert_eq!(a.dash.is_some(), plot.series[i].reference);
            }
            // Each dot is drawn, of the curve's points and in the legend.
            let svg = plot.svg(&theme).unwrap();
            let (dots, references) = (plot.series[0].points.len() + 1, styles.iter().take(REFERENCES));
            for style in references {
                let RGBColor(red, green, blue) = style.color;
                let fill = format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"");
                let shape = match style.dot {
                    Dot::Circle => "<circle ",
                    Dot::Square => "<rect ",
                    Dot::Triangle => "<polygon ",
                };
                let of = |line: &&str| {
                    line.starts_with(shape) && line.contains(&fill) && line.contains("opacity=\"1\"")
                };
                assert_eq!(svg.lines().filter(of).count(), dots, "{}: {shape} {fill}", theme.name);
            }
        }
    }

    /// The boxes of the texts of a picture that begin where they are placed: left, top, right, bottom.
    fn boxes(svg: &str) -> Vec<(String, [i32; 4])> {
        let mut boxes = Vec::new();
        for element in svg.split("<text ").skip(1).filter(|e| e.contains("text-anchor=\"start\"")) {
            let number = |name: &str| {
                let value = element.split(&format!(" {name}=\"")).nth(1).or(element.strip_prefix("x=\""));
                value.and_then(|v| v.split('"').next()).and_then(|v| v.parse::<f64>().ok()).unwrap()
            };
            let words = element.split_once(">\n").and_then(|e| e.1.split_once("\n</text>")).unwrap().0;
            // The library writes sizes as it takes them, over 1.24.
            let size = (number("font-size") * 1.24).round();
            let (width, height) = (FONT, size).into_font().box_size(words).unwrap();
            let (x, y) = (number("x") as i32, number("y") as i32);
            boxes.push((words.to_owned(), [x, y, x + width as i32, y + height as i32]));
        }
        boxes
    }

    #[test]
    fn labels_of_marks_do_not_overlap() {
        // Spread out, near each other, in one place, and at the right edge.
        let places: [(&[f64], usize); 6] = [
            (&[100.0, 1000.0, 10_000.0], 0),
            (&[126.0, 148.0, 195.0, 231.0, 310.0, 357.0, 1207.0, 9893.0], 0),
            (&[300.0; 8], 2),
            (&[65_000.0, 65_100.0, 65_200.0, 65_300.0], 0),
            (&[100.0, 150.0, 151.0, 152.0, 153.0, 154.0, 155.0, 60_000.0], 1),
            (&[], 0),
        ];
        for (at, hidden) in places {
            let mut plot = plot(CURVES, REFERENCES);
            plot.marks = at
                .iter()
                .enumerate()
                .map(|(i, x)| (*x, format!("{}.0 KiB", 100 + i), REFERENCES + i))
                .collect();
            let svg = plot.svg(&LIGHT).unwrap();
            assert_eq!(svg, plot.svg(&LIGHT).unwrap());
            let boxes = boxes(&svg);
            let shown = boxes.iter().filter(|b| b.0.ends_with(" KiB")).count();
            assert_eq!(shown, at.len() - hidden, "{at:?}");
            assert_eq!(svg.contains(&format!("labels left out: {hidden}")), hidden > 0);
            for (i, (a, p)) in boxes.iter().enumerate() {
                assert!(
                    p[0] >= 0 && p[1] >= 0 && p[2] <= SIZE.0 as i32 && p[3] <= SIZE.1 as i32,
                    "{a} {p:?}"
                );
                for (b, q) in &boxes[..i] {
                    let apart = p[2] <= q[0] || q[2] <= p[0] || p[3] <= q[1] || q[3] <= p[1];
                    assert!(apart, "{a} at {p:?} and {b} at {q:?}, of {at:?}");
                }
            }
            // No line goes through the label of another.
            let xs = plot.x.ticks([64.0, 65_536.0].into_iter());
            let labels = plot.labels(&xs);
            for label in &labels {
                let Some((from, row)) = label.place else { continue };
                let words = &plot.marks[label.mark].1;
                let to = from + (FONT, LABEL).into_font().box_size(words).unwrap().0 as i32;
                let through = |other: &&Label| {
                    other.place.is_some_and(|p| p.1 >= row && (from..to).contains(&(p.0 - BESIDE)))
                };
                assert!(!labels.iter().any(|other| through(&other)), "{label:?} of {labels:?}");
            }
        }
    }

    #[test]
    fn names_from_a_file_leave_the_picture_whole() {
        let axis = || Axis { label: "<x>".to_owned(), format: crate::units::digits, base: 2.0 };
        let odd = "<a>&\"'\x1b\u{1}\n]]>";
        let plot = Plot {
            id: "a".to_owned(),
            title: format!("title {odd}"),
            note: format!("note {odd}"),
            models: vec![format!("model {odd}"), "another".to_owned()],
            x: axis(),
            y: axis(),
            series: vec![Series {
                name: odd.to_owned(),
                points: vec![(1.0, [1.0; 3]), (2.0, [2.0; 3])],
                reference: false,
            }],
            marks: vec![(1.5, odd.to_owned(), 0)],
            left_out: vec![odd.to_owned()],
        };
        let svg = plot.svg(&LIGHT).unwrap();
        assert!(!svg.contains("<a>") && !svg.contains("]]>"), "{svg}");
        assert!(svg.chars().all(|c| c == '\n' || !c.is_control()), "{svg}");
        assert!(svg.contains("and 1 not drawn") && svg.contains("Not drawn: &lt;a&gt;"));
        let (amps, entities) = (
            svg.matches('&').count(),
            svg.matches("&amp;").count()
                + ["&lt;", "&gt;", "&quot;", "&apos;", "&#39;"]
                    .iter()
                    .map(|e| svg.matches(e).count())
                    .sum::<usize>(),
        );
        assert_eq!(amps, entities, "{svg}");
    }

    #[test]
    fn long_names_are_cut_where_they_may_be() {
        assert_eq!(wrapped("sim:profile=bluefield3 q32 by 16", 28), ["sim:profile=bluefield3 q32 ", "by 16"]);
        assert_eq!(wrapped("short", 28), ["short"]);
    }
}
