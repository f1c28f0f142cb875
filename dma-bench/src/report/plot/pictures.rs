//! A plot as a picture that stands alone, in the colours of a theme: SVG and PNG.

use plotters::prelude::*;

use super::Plot;
use super::palette::Theme;
use super::pen::{Pen, SIZE, fonts};
use crate::report::escape;

impl Plot {
    /// As an SVG.
    ///
    /// # Errors
    ///
    /// The plotting library fails.
    pub(in crate::report) fn svg(&self, theme: &Theme) -> Result<String, String> {
        fonts();
        let mut svg = String::new();
        let pen = Pen { colors: &|role| theme.color(role), scale: 1 };
        self.draw(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(), &pen)?;
        // It grows and shrinks with the page, and says what it is to those who cannot see it.
        let name = escape(&self.words());
        let (width, height) = SIZE;
        let head = format!("<svg width=\"{width}\" height=\"{height}\"");
        Ok(svg.replacen(&head, &format!("{head} role=\"img\" aria-label=\"{name}\""), 1))
    }

    /// As a PNG, twice as large.
    ///
    /// # Errors
    ///
    /// The plotting library fails.
    pub(in crate::report) fn png(&self, theme: &Theme) -> Result<Vec<u8>, String> {
        fonts();
        let (width, height) = (SIZE.0 * 2, SIZE.1 * 2);
        let mut pixels = vec![0; width as usize * height as usize * 3];
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        self.draw(&area, &Pen { colors: &|role| theme.color(role), scale: 2 })?;
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
}
