//! A plot within a page: SVG without colours. Each element is in a group whose class is its role, and the page's style sheet ([`styles`]) has the
//! colours of light and dark pages, so that a plot is there once. The drawing code is told a colour for each role that stands for nothing else, and
//! a colour that is none of these is an error: none can slip into the page.

use std::fmt::Write as _;
use std::mem::take;

use plotters::backend::DrawingBackend;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingErrorKind, FontTransform,
};

use super::Plot;
use super::palette::{DARK, LIGHT, Role, Theme};
use super::pen::{Pen, SIZE, fonts};
use crate::report::escape;

impl Plot {
    /// As an SVG for a page with [`styles`].
    ///
    /// # Errors
    ///
    /// The plotting library fails.
    pub(in crate::report) fn inline(&self) -> Result<String, String> {
        self.inline_with(&stand_in)
    }

    /// With what stands in for the colours of roles.
    pub(super) fn inline_with(&self, colors: &dyn Fn(Role) -> RGBColor) -> Result<String, String> {
        fonts();
        let mut body = String::new();
        let area = Inline::new(&mut body).into_drawing_area();
        self.draw(&area, &Pen { colors, scale: 1 })?;
        area.present().map_err(super::pen::text)?;
        drop(area);
        let (width, height) = SIZE;
        // It grows and shrinks with the page, and says what it is to those who cannot see it.
        Ok(format!(
            "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n{body}</svg>",
            escape(&self.words())
        ))
    }
}

/// The colours of all roles, for light and for dark pages, and which class has which.
pub(in crate::report) fn styles() -> String {
    let of = |theme: &Theme| -> String {
        Role::ALL.iter().map(|r| format!(" --plot-{}: {};", class(*r), hex(theme.color(*r)))).collect()
    };
    let mut styles = format!(
        ":root {{{} }}\n@media (prefers-color-scheme: dark) {{ :root {{{} }} }}\n",
        of(&LIGHT),
        of(&DARK)
    );
    for class in Role::ALL.map(class) {
        let _ = writeln!(styles, ".plot .{class} {{ color: var(--plot-{class}); }}");
    }
    styles
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// What the style sheet calls a role.
pub(super) fn class(role: Role) -> String {
    match role {
        Role::Paper => "paper".to_owned(),
        Role::Ink => "ink".to_owned(),
        Role::Dim => "dim".to_owned(),
        Role::Grid => "grid".to_owned(),
        Role::Curve(n) => format!("curve-{n}"),
        Role::Reference(n) => format!("reference-{n}"),
    }
}

/// The colour that stands for a role while a plot is drawn: its place among all of them.
fn stand_in(role: Role) -> RGBColor {
    let at = Role::ALL.iter().position(|r| *r == role).unwrap_or(Role::ALL.len());
    RGBColor(b'r', b'o', at as u8)
}

fn role(color: BackendColor) -> Result<Role, Failed> {
    let role = match color.rgb {
        (b'r', b'o', at) => Role::ALL.get(usize::from(at)),
        _ => None,
    };
    role.copied().ok_or(DrawingErrorKind::DrawingError(NoRole(color.rgb)))
}

/// A colour stands for no role.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the colour {0:?} is no role's")]
pub(super) struct NoRole((u8, u8, u8));

type Failed = DrawingErrorKind<NoRole>;

/// Writes what is drawn. What follows one another in the same colour is a group, and all lines of a group that are as thick are one path: dashes are
/// many. Their order in a group does not matter, since they have one colour.
struct Inline<'a> {
    out: &'a mut String,
    /// The role of the group that is being gathered.
    role: Option<Role>,
    /// Its lines by how thick and how faint they are, as attributes.
    lines: Vec<(String, Lines)>,
    /// Its other elements.
    others: String,
}

impl<'a> Inline<'a> {
    fn new(out: &'a mut String) -> Self {
        Self { out, role: None, lines: Vec::new(), others: String::new() }
    }

    /// Ends the group unless the next element belongs to it; `None` if the element is not to be seen.
    fn begin(&mut self, color: BackendColor) -> Result<Option<String>, Failed> {
        if color.alpha == 0.0 {
            return Ok(None);
        }
        let role = role(color)?;
        // The page is the paper.
        if role == Role::Paper {
            return Ok(None);
        }
        if self.role != Some(role) {
            self.end();
            self.role = Some(role);
        }
        let faint = color.alpha < 1.0;
        Ok(Some(if faint { format!(" opacity=\"{}\"", color.alpha) } else { String::new() }))
    }

    fn end(&mut self) {
        let Some(role) = self.role.take() else { return };
        let _ = write!(self.out, "<g class=\"{}\">{}", class(role), take(&mut self.others));
        for (look, lines) in take(&mut self.lines) {
            let _ = write!(self.out, "<path{look} d=\"{}\"/>", lines.data);
        }
        self.out.push_str("</g>\n");
    }

    fn line(
        &mut self,
        points: impl IntoIterator<Item = BackendCoord>,
        style: &impl BackendStyle,
    ) -> Result<(), Failed> {
        let Some(faint) = self.begin(style.color())? else { return Ok(()) };
        let look = match style.stroke_width() {
            1 => faint,
            width => format!(" stroke-width=\"{width}\"{faint}"),
        };
        let at = self.lines.iter().position(|l| l.0 == look).unwrap_or_else(|| {
            self.lines.push((look, Lines::default()));
            self.lines.len() - 1
        });
        self.lines[at].1.add(points);
        Ok(())
    }
}

/// The data of a path: every place is given by how far it is from the one before.
#[derive(Default)]
struct Lines {
    data: String,
    at: BackendCoord,
}

impl Lines {
    fn add(&mut self, points: impl IntoIterator<Item = BackendCoord>) {
        for (n, (x, y)) in points.into_iter().enumerate() {
            let (right, down) = (x - self.at.0, y - self.at.1);
            self.at = (x, y);
            let _ = match (n, right, down) {
                (0, ..) => write!(self.data, "m{right}{}{down}", if down < 0 { "" } else { " " }),
                (_, _, 0) => write!(self.data, "h{right}"),
                (_, 0, _) => write!(self.data, "v{down}"),
                _ => write!(self.data, "l{right}{}{down}", if down < 0 { "" } else { " " }),
            };
        }
    }
}

impl DrawingBackend for Inline<'_> {
    type ErrorType = NoRole;

    fn get_size(&self) -> (u32, u32) {
        SIZE
    }

    fn ensure_prepared(&mut self) -> Result<(), Failed> {
        Ok(())
    }

    fn present(&mut self) -> Result<(), Failed> {
        self.end();
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Result<(), Failed> {
        self.draw_rect((x, y), (x + 1, y + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Result<(), Failed> {
        self.line([from, to], style)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Result<(), Failed> {
        self.line(path, style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<(), Failed> {
        let ((left, top), (right, bottom)) = (from, to);
        if !fill {
            return self.line([from, (right, top), to, (left, bottom), from], style);
        }
        if let Some(faint) = self.begin(style.color())? {
            let (width, height) = (right - left, bottom - top);
            let _ = write!(
                self.others,
                "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"{faint}/>"
            );
        }
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        (x, y): BackendCoord,
        radius: u32,
        style: &S,
        fill: bool,
    ) -> Result<(), Failed> {
        if let Some(faint) = self.begin(style.color())? {
            let hollow = if fill { "" } else { " fill=\"none\" stroke=\"currentColor\"" };
            let _ = write!(self.others, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"{hollow}{faint}/>");
        }
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Result<(), Failed> {
        if let Some(faint) = self.begin(style.color())? {
            let points: Vec<String> = path.into_iter().map(|(x, y)| format!("{x},{y}")).collect();
            let _ = write!(self.others, "<polygon points=\"{}\"{faint}/>", points.join(" "));
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        words: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Result<(), Failed> {
        let Some(faint) = self.begin(style.color())? else { return Ok(()) };
        let anchor = match style.anchor().h_pos {
            HPos::Left => "",
            HPos::Center => " class=\"middle\"",
            HPos::Right => " class=\"end\"",
        };
        let down = match style.anchor().v_pos {
            VPos::Top => ".76em",
            VPos::Center => ".5ex",
            VPos::Bottom => "-.5ex",
        };
        // What pictures that stand alone make of a size, to three places.
        let size = (style.size() / 1.24 * 1000.0).round() / 1000.0;
        let size = if size == TEXT { String::new() } else { format!(" font-size=\"{size}\"") };
        let weight = match style.style() {
            FontStyle::Bold => " font-weight=\"bold\"",
            _ => "",
        };
        let turned = match style.transform() {
            FontTransform::None => String::new(),
            FontTransform::Rotate90 => format!(" transform=\"rotate(90 {x} {y})\""),
            FontTransform::Rotate180 => format!(" transform=\"rotate(180 {x} {y})\""),
            FontTransform::Rotate270 => format!(" transform=\"rotate(270 {x} {y})\""),
        };
        let _ = write!(
            self.others,
            "<text x=\"{x}\" y=\"{y}\" dy=\"{down}\"{anchor}{size}{weight}{turned}{faint}>{}</text>",
            escape(words)
        );
        Ok(())
    }
}

/// The size of most texts, which the style sheet has.
pub(super) const TEXT: f64 = 10.484;
