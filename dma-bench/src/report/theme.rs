//! Colours by their role, for light and dark pages and slides. They are Okabe and Ito's, which colour-blind
//! people can tell apart, darkened or lightened for contrast.

use plotters::style::RGBColor;

/// The most curves of a plot.
pub(super) const SERIES: usize = 6;

#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    /// Suffix of file names.
    pub(super) name: &'static str,
    /// Background.
    pub(super) paper: RGBColor,
    /// Text.
    pub(super) ink: RGBColor,
    /// Text of less weight, and axes.
    pub(super) dim: RGBColor,
    /// Grid lines.
    pub(super) grid: RGBColor,
    /// Curves.
    pub(super) series: [RGBColor; SERIES],
}

pub(super) const LIGHT: Theme = Theme {
    name: "light",
    paper: RGBColor(255, 255, 255),
    ink: RGBColor(31, 35, 40),
    dim: RGBColor(89, 99, 110),
    grid: RGBColor(225, 229, 234),
    series: [
        RGBColor(0, 114, 178),
        RGBColor(200, 80, 0),
        RGBColor(0, 120, 88),
        RGBColor(170, 68, 153),
        RGBColor(140, 98, 0),
        RGBColor(90, 90, 200),
    ],
};

pub(super) const DARK: Theme = Theme {
    name: "dark",
    paper: RGBColor(22, 27, 34),
    ink: RGBColor(230, 237, 243),
    dim: RGBColor(155, 165, 176),
    grid: RGBColor(46, 53, 62),
    series: [
        RGBColor(88, 166, 255),
        RGBColor(255, 150, 90),
        RGBColor(63, 200, 150),
        RGBColor(225, 150, 215),
        RGBColor(230, 185, 70),
        RGBColor(165, 165, 255),
    ],
};

/// Placeholder colours, which no theme has. A page replaces them by variables of its style sheet.
pub(super) const STAND_IN: Theme = Theme {
    name: "page",
    paper: RGBColor(1, 2, 0),
    ink: RGBColor(1, 2, 1),
    dim: RGBColor(1, 2, 2),
    grid: RGBColor(1, 2, 3),
    series: [
        RGBColor(1, 2, 10),
        RGBColor(1, 2, 11),
        RGBColor(1, 2, 12),
        RGBColor(1, 2, 13),
        RGBColor(1, 2, 14),
        RGBColor(1, 2, 15),
    ],
};

impl Theme {
    /// Returns every colour with its name in style sheets.
    pub(super) fn colors(&self) -> Vec<(String, RGBColor)> {
        let named = [("paper", self.paper), ("ink", self.ink), ("dim", self.dim), ("grid", self.grid)];
        let series = self.series.iter().enumerate().map(|(n, color)| (format!("series-{n}"), *color));
        named.into_iter().map(|(name, color)| (name.to_owned(), color)).chain(series).collect()
    }
}

/// Returns a colour as style sheets and the plotting library write it.
pub(super) fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Returns the variables of a page's style sheet, for light and dark.
pub(super) fn variables() -> String {
    let of = |theme: &Theme| -> String {
        theme.colors().iter().map(|(name, color)| format!(" --plot-{name}: {};", hex(*color))).collect()
    };
    format!(":root {{{} }}\n@media (prefers-color-scheme: dark) {{ :root {{{} }} }}\n", of(&LIGHT), of(&DARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WCAG 2.1, relative luminance and contrast ratio.
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
            for text in [theme.ink, theme.dim].into_iter().chain(theme.series) {
                assert!(contrast(text, theme.paper) >= 4.5, "{}: {text:?}", theme.name);
            }
        }
    }

    #[test]
    fn stand_ins_are_nobody_elses() {
        let all: Vec<String> = STAND_IN.colors().into_iter().map(|(_, c)| hex(c)).collect();
        for theme in [LIGHT, DARK] {
            assert!(theme.colors().iter().all(|(_, c)| !all.contains(&hex(*c))));
        }
        assert!((1..all.len()).all(|at| !all[..at].contains(&all[at])));
    }
}
