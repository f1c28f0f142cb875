//! Draws a plot, on whatever the plotting library can draw on: title, chart, curves. Labels of marks and the legend have files of their own.

use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::prelude::*;

use super::Plot;
use super::axis::Ticks;
use super::labels::{LABEL, Label, ROW};
use super::palette::Role;
use super::pen::{Drawn, Pen, clean, text};

/// The width of the legend.
pub(super) const LEGEND: i32 = 235;
/// What is left free to the left and to the right of a chart.
pub(super) const MARGINS: (i32, i32) = (8, 14);
/// The width of the ticks' labels on the left.
pub(super) const Y_LABELS: i32 = 64;

/// Half the width of a band that is at one point only.
const BAR: i32 = 4;

type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<Ticks, Ticks>>;

impl Plot {
    pub(super) fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, pen: &Pen<'_>) -> Drawn {
        area.fill(&pen.color(Role::Paper)).map_err(text)?;
        let head = self.head(area, pen)?;
        let (_, body) = area.split_vertically(head);
        let (left, legend) = body.split_horizontally(area.dim_in_pixel().0 as i32 - pen.px(LEGEND));

        let xs = self.x.ticks(self.series.iter().flat_map(|s| s.points.iter().map(|p| p.0)));
        let ys = self.y.ticks(self.series.iter().flat_map(|s| s.points.iter().flat_map(|p| p.1.all())));
        let labels = self.labels(&xs);
        let rows = labels.iter().filter_map(|l| l.place).map(|p| p.1 + 1).max().unwrap_or(0);
        let top = 8 + (ROW * rows).max(28);
        let mut chart = ChartBuilder::on(&left)
            .margin_left(pen.px(MARGINS.0))
            .margin_right(pen.px(MARGINS.1))
            .margin_bottom(pen.px(6))
            .margin_top(pen.px(top))
            .x_label_area_size(pen.px(46))
            .y_label_area_size(pen.px(Y_LABELS))
            .build_cartesian_2d(xs, ys.clone())
            .map_err(text)?;
        self.mesh(&mut chart, pen)?;
        for label in &labels {
            self.mark(label, &ys, &mut chart, &body, pen)?;
        }
        for at in 0..self.series.len() {
            self.curve(at, &mut chart, &left, pen)?;
        }
        // It begins below the labels, which may reach above it.
        let hidden = labels.iter().filter(|l| l.place.is_none()).count();
        self.legend(&legend, pen, top, hidden)
    }

    /// The lines of text above the chart; where they end.
    fn head<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, pen: &Pen<'_>) -> Result<i32, String> {
        let write = |words: &str, top: i32, style| {
            area.draw(&Text::new(clean(words), (pen.px(18), pen.px(top)), style)).map_err(text)
        };
        write(&self.title, 12, pen.bold(17, Role::Ink))?;
        write(&self.note, 36, pen.font(13, Role::Dim))?;
        let mut top = 56;
        for line in self.model_lines() {
            write(&line, top, pen.font(11, Role::Dim))?;
            top += 16;
        }
        Ok(pen.px(top))
    }

    /// The axes, and the lines behind the curves.
    fn mesh<DB: DrawingBackend>(&self, chart: &mut Chart<'_, DB>, pen: &Pen<'_>) -> Drawn {
        chart
            .configure_mesh()
            .bold_line_style(pen.stroke(Role::Grid, 1))
            .light_line_style(TRANSPARENT)
            .axis_style(pen.stroke(Role::Dim, 1))
            .x_desc(self.x.label.clone())
            .y_desc(self.y.label.clone())
            .axis_desc_style(pen.font(13, Role::Ink))
            .label_style(pen.font(13, Role::Dim))
            .x_label_formatter(&|v| (self.x.format)(self.x.value(*v)))
            .y_label_formatter(&|v| (self.y.format)(self.y.value(*v)))
            .draw()
            .map_err(text)
    }

    /// A mark: a line through the chart and up to its label.
    fn mark<DB: DrawingBackend>(
        &self,
        label: &Label,
        ys: &Ticks,
        chart: &mut Chart<'_, DB>,
        body: &DrawingArea<DB, Shift>,
        pen: &Pen<'_>,
    ) -> Drawn {
        let (at, words, curve) = &self.marks[label.mark];
        let (x, role) = (self.x.place(*at), self.style(*curve).role);
        let stroke = pen.stroke(role, 1);
        let line = [(x, ys.from), (x, ys.to)];
        chart.draw_series(DashedLineSeries::new(line, pen.px(5), pen.px(4), stroke)).map_err(text)?;
        let Some((from, row)) = label.place else { return Ok(()) };
        let (px, py) = within(body, chart.backend_coord(&(x, ys.to)));
        let y = py - pen.px(4 + ROW * (row + 1));
        body.draw(&PathElement::new(vec![(px, py), (px, y)], stroke)).map_err(text)?;
        body.draw(&Text::new(clean(words), (pen.px(from), y), pen.font(LABEL, role))).map_err(text)
    }

    /// A curve: its band, its line, its points.
    fn curve<DB: DrawingBackend>(
        &self,
        at: usize,
        chart: &mut Chart<'_, DB>,
        left: &DrawingArea<DB, Shift>,
        pen: &Pen<'_>,
    ) -> Drawn {
        let (series, style) = (&self.series[at], self.style(at));
        let place = |x: f64, y: f64| (self.x.place(x), self.y.place(y));
        let faint = pen.color(style.role).mix(0.15);
        // Where nothing is known of the band, it is interrupted.
        for run in series.points.split(|p| p.1.band.is_none()) {
            let edge = |which: usize| run.iter().filter_map(move |p| Some(place(p.0, p.1.band?[which])));
            let band: Vec<(f64, f64)> = edge(0).chain(edge(1).rev()).collect();
            match band[..] {
                // One between others without: a bar.
                [low, high] if series.points.len() > 1 => {
                    let [(x, bottom), (_, top)] = [low, high].map(|p| within(left, chart.backend_coord(&p)));
                    let corners = [(x - pen.px(BAR), top), (x + pen.px(BAR), bottom)];
                    left.draw(&Rectangle::new(corners, faint.filled())).map_err(text)?;
                }
                [] | [_, _] => {}
                _ => {
                    chart.draw_series(std::iter::once(Polygon::new(band, faint))).map_err(text)?;
                }
            }
        }
        let line = || series.points.iter().map(|p| place(p.0, p.1.middle));
        let stroke = pen.stroke(style.role, style.width());
        match style.dash {
            Some((dash, gap)) => {
                chart
                    .draw_series(DashedLineSeries::new(line(), pen.px(dash), pen.px(gap), stroke))
                    .map_err(text)?;
            }
            None => {
                chart.draw_series(LineSeries::new(line(), stroke)).map_err(text)?;
            }
        }
        for p in line() {
            pen.dot(left, style, within(left, chart.backend_coord(&p)))?;
        }
        Ok(())
    }
}

/// A place of the whole picture, from the corner of one of its areas.
fn within<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, (x, y): (i32, i32)) -> (i32, i32) {
    let (xs, ys) = area.get_pixel_range();
    (x - xs.start, y - ys.start)
}
