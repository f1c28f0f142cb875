//! Colours by what they are for, and how curves are drawn so that they can be told apart.

use plotters::prelude::*;

/// What a colour is for. Two roles may look the same in one theme, and differ in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// What is drawn on.
    Paper,
    /// Text that matters.
    Ink,
    /// Text beside it, and the axes.
    Dim,
    /// The lines behind curves.
    Grid,
    /// A curve, by its number.
    Curve(usize),
    /// A curve that others are compared with, by its number.
    Reference(usize),
}

impl Role {
    /// Every role that a plot can have.
    pub(super) const ALL: [Self; 4 + CURVES + REFERENCES] = [
        Self::Paper,
        Self::Ink,
        Self::Dim,
        Self::Grid,
        Self::Curve(0),
        Self::Curve(1),
        Self::Curve(2),
        Self::Curve(3),
        Self::Curve(4),
        Self::Curve(5),
        Self::Curve(6),
        Self::Curve(7),
        Self::Reference(0),
        Self::Reference(1),
        Self::Reference(2),
    ];
}

/// The most curves that can be told apart.
pub(in crate::report) const CURVES: usize = 8;
/// The most references that can be told apart.
pub(in crate::report) const REFERENCES: usize = 3;

/// A colour for each role.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct Theme {
    /// `light` or `dark`.
    pub(in crate::report) name: &'static str,
    paper: RGBColor,
    ink: RGBColor,
    dim: RGBColor,
    grid: RGBColor,
    curves: [RGBColor; CURVES],
    references: [RGBColor; REFERENCES],
}

/// For light pages: Okabe and Ito's colours, told apart by the colour-blind, the light ones darkened.
pub(in crate::report) const LIGHT: Theme = Theme {
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
pub(in crate::report) const DARK: Theme = Theme {
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

impl Theme {
    pub(super) fn color(&self, role: Role) -> RGBColor {
        match role {
            Role::Paper => self.paper,
            Role::Ink => self.ink,
            Role::Dim => self.dim,
            Role::Grid => self.grid,
            Role::Curve(n) => self.curves[n % CURVES],
            Role::Reference(n) => self.references[n % REFERENCES],
        }
    }
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// In whose colour.
    pub(super) role: Role,
    /// How long its dashes are and what lies between them, if it has any.
    pub(super) dash: Option<(i32, i32)>,
    /// What its points are drawn as.
    pub(super) dot: Dot,
}

/// What a curve's points are drawn as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dot {
    /// A disc.
    Circle,
    /// A square.
    Square,
    /// A triangle.
    Triangle,
}

/// The dashes and dots of references. The first is the one that most are compared with.
const DASHES: [((i32, i32), Dot); REFERENCES] =
    [((9, 5), Dot::Circle), ((3, 5), Dot::Square), ((16, 4), Dot::Triangle)];

impl Style {
    /// Of the curve, or the reference, with this number.
    pub(super) fn of(number: usize, reference: bool) -> Self {
        if reference {
            let (dash, dot) = DASHES[number % REFERENCES];
            Self { role: Role::Reference(number % REFERENCES), dash: Some(dash), dot }
        } else {
            Self { role: Role::Curve(number % CURVES), dash: None, dot: Dot::Circle }
        }
    }

    /// How thick its line is.
    pub(super) fn width(&self) -> i32 {
        if self.dash.is_some() { 3 } else { 2 }
    }
}
