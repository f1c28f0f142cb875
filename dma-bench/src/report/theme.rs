//! Colours by their role, for light and dark pages and slides. They are the colours of Okabe and Ito, which
//! colour-blind people can distinguish, darkened or lightened for contrast.

use plotters::style::RGBColor;

/// Maximum number of curves of a plot.
pub(super) const MAX_SERIES: usize = 6;

#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    /// Suffix of file names.
    pub(super) name: &'static str,
    /// The colours of [`PAPER`], [`INK`], [`DIM`] and [`GRID`], then the colours of the curves, as 0xRRGGBB.
    colors: [u32; 4 + MAX_SERIES],
}

/// Background.
pub(super) const PAPER: usize = 0;
/// Text.
pub(super) const INK: usize = 1;
/// Secondary text, and axes.
pub(super) const DIM: usize = 2;
/// Grid lines.
pub(super) const GRID: usize = 3;

pub(super) const LIGHT: Theme = Theme {
    name: "light",
    colors: [
        0xffffff, 0x1f2328, 0x59636e, 0xe1e5ea, 0x0072b2, 0xc85000, 0x007858, 0xaa4499, 0x8c6200, 0x5a5ac8,
    ],
};

pub(super) const DARK: Theme = Theme {
    name: "dark",
    colors: [
        0x161b22, 0xe6edf3, 0x9ba5b0, 0x2e353e, 0x58a6ff, 0xff965a, 0x3fc896, 0xe196d7, 0xe6b946, 0xa5a5ff,
    ],
};

impl Theme {
    /// Returns placeholder colours, which no theme contains. A page replaces them by variables of its style
    /// sheet.
    pub(super) fn stand_in() -> Self {
        Self { name: "page", colors: std::array::from_fn(|role| 0x01_02_00 | role as u32) }
    }

    /// Returns the colour of a role, such as [`INK`].
    pub(super) fn color(&self, role: usize) -> RGBColor {
        let [_, red, green, blue] = self.colors[role].to_be_bytes();
        RGBColor(red, green, blue)
    }

    /// Returns the colour of curve `at`. Colours repeat after [`MAX_SERIES`] curves.
    pub(super) fn series(&self, at: usize) -> RGBColor {
        self.color(4 + at % MAX_SERIES)
    }

    /// Returns every colour with its name in style sheets.
    pub(super) fn named(&self) -> impl Iterator<Item = (String, RGBColor)> {
        let series = (0..MAX_SERIES).map(|n| format!("series-{n}"));
        let names = ["paper", "ink", "dim", "grid"].into_iter().map(str::to_owned).chain(series);
        names.enumerate().map(|(role, name)| (name, self.color(role)))
    }
}

/// Returns a colour in the notation of style sheets and of the plotting library.
pub(super) fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Returns the variables of a page's style sheet, for light and dark mode.
pub(super) fn variables() -> String {
    let of = |theme: &Theme| -> String {
        theme.named().map(|(name, color)| format!(" --plot-{name}: {};", hex(color))).collect()
    };
    format!(":root {{{} }}\n@media (prefers-color-scheme: dark) {{ :root {{{} }} }}\n", of(&LIGHT), of(&DARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These are the definitions of relative luminance and contrast ratio in WCAG 2.1.
    fn contrast(a: RGBColor, b: RGBColor) -> f64 {
        let luminance = |RGBColor(r, g, b): RGBColor| {
            let linear = |c: u8| {
                let c = f64::from(c) / 255.0;
                if c <= 0.03928 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn colours_contrast_with_the_paper() {
        for theme in [LIGHT, DARK] {
            for text in (INK..theme.colors.len()).filter(|role| *role != GRID) {
                let contrast = contrast(theme.color(text), theme.color(PAPER));
                assert!(contrast >= 4.5, "{}: {text}", theme.name);
            }
        }
    }

    #[test]
    fn stand_ins_are_nobody_elses() {
        let all: Vec<String> = Theme::stand_in().named().map(|(_, color)| hex(color)).collect();
        for theme in [LIGHT, DARK] {
            assert!(theme.named().all(|(_, c)| !all.contains(&hex(c))));
        }
        assert!((1..all.len()).all(|at| !all[..at].contains(&all[at])));
    }
}
