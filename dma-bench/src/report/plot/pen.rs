//! [`Pen`]: what the drawing code draws with. It asks for a colour by its role, and for sizes before they are scaled; where the picture goes decides
//! what it gets.

use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{TextStyle, register_font};

use super::palette::{Dot, Role, Style};
use crate::output;

/// How large a plot is, before it is scaled.
pub(super) const SIZE: (u32, u32) = (980, 500);
pub(super) const FONT: &str = "sans-serif";

/// What drawing comes to.
pub(super) type Drawn = Result<(), String>;

pub(super) fn text<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> String {
    format!("plotting: {error}")
}

/// Text that an XML file may contain; the library escapes it.
pub(super) fn clean(text: &str) -> String {
    output::printable(text).replace(['\u{fffe}', '\u{ffff}'], " ")
}

/// Makes the font known to the plotting library, so that text is the same on machines without fonts.
pub(super) fn fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // It fails only for what is no font.
        let _ = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
        let _ = register_font(FONT, FontStyle::Bold, dejavu::sans::bold());
    });
}

/// What is drawn with.
pub(super) struct Pen<'a> {
    /// The colour of each role.
    pub(super) colors: &'a dyn Fn(Role) -> RGBColor,
    /// How many pixels one of [`SIZE`] is.
    pub(super) scale: i32,
}

impl Pen<'_> {
    pub(super) fn color(&self, role: Role) -> RGBColor {
        (self.colors)(role)
    }

    /// Scaled.
    pub(super) fn px(&self, length: i32) -> i32 {
        length * self.scale
    }

    /// A line so thick.
    pub(super) fn stroke(&self, role: Role, width: i32) -> ShapeStyle {
        self.color(role).stroke_width(self.px(width) as u32)
    }

    pub(super) fn font(&self, size: i32, role: Role) -> TextStyle<'static> {
        (FONT, self.px(size)).into_font().color(&self.color(role))
    }

    pub(super) fn bold(&self, size: i32, role: Role) -> TextStyle<'static> {
        (FONT, self.px(size), FontStyle::Bold).into_font().color(&self.color(role))
    }

    /// A point of a curve, at a place that is scaled.
    pub(super) fn dot<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        style: Style,
        (x, y): (i32, i32),
    ) -> Drawn {
        let (r, fill) = (self.px(3), self.color(style.role).filled());
        match style.dot {
            Dot::Circle => area.draw(&Circle::new((x, y), r, fill)),
            Dot::Square => area.draw(&Rectangle::new([(x - r, y - r), (x + r, y + r)], fill)),
            Dot::Triangle => area.draw(&TriangleMarker::new((x, y), self.px(5), fill)),
        }
        .map_err(text)
    }
}
