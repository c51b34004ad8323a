//! The plot of records per second by batch size, as SVG. Both axes are logarithmic.

use std::fmt::Write as _;

use benches::figures::{number, short};

/// The size of the picture and the margins of the curves, in pixels.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 220.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 70.0;

/// Colours and dashes of the curves. The colours are readable on white and on black.
const STYLES: [(&str, &str); 8] = [
    ("#8b949e", "8 4"),
    ("#d1602a", "none"),
    ("#3b82d6", "none"),
    ("#2f9e62", "none"),
    ("#a463d8", "2 3"),
    ("#c79a1c", "2 3"),
    ("#d6568c", "2 3"),
    ("#2aa1b3", "2 3"),
];

pub(crate) struct Line {
    pub(crate) name: String,
    /// Batch size and records per second.
    pub(crate) points: Vec<(usize, f64)>,
}

/// The ranges of the axes, as exponents of ten.
struct Frame {
    x: (i32, i32),
    y: (i32, i32),
}

pub(crate) fn draw(lines: Vec<Line>, body: usize) -> String {
    let lines: Vec<Line> = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let frame = Frame {
        x: decades(points().map(|(batch, _)| number(*batch))),
        y: decades(points().map(|(_, records)| *records)),
    };
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Records per second by batch size">
<style>
  text {{ font: 13px system-ui, sans-serif; fill: #24292f }}
  .grid {{ stroke: #8b949e; stroke-opacity: .3 }}
  .curve {{ fill: none; stroke-width: 2.5 }}
  @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} }}
</style>
<text x="{LEFT}" y="22" font-weight="600">New messages, bodies of {body} bytes, work that does nothing</text>
"#
    );
    // Writing to a String cannot fail.
    let _ = axes(&mut svg, &frame);
    for (index, line) in lines.iter().enumerate() {
        let _ = curve(&mut svg, &frame, index, line);
    }
    svg + "</svg>\n"
}

fn axes(svg: &mut String, frame: &Frame) -> std::fmt::Result {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for decade in frame.x.0..=frame.x.1 {
        let (x, label) = (frame.x(10_f64.powi(decade)), short(10_f64.powi(decade)));
        writeln!(svg, r#"<line class="grid" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}"/>"#)?;
        writeln!(svg, r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#, bottom + 22.0)?;
    }
    for decade in frame.y.0..=frame.y.1 {
        let (y, label) = (frame.y(10_f64.powi(decade)), short(10_f64.powi(decade)));
        writeln!(svg, r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}"/>"#)?;
        writeln!(svg, r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{label}</text>"#, LEFT - 8.0, y + 4.0)?;
    }
    let (across, down) = (f64::midpoint(LEFT, right), f64::midpoint(TOP, bottom));
    writeln!(svg, r#"<text x="{across}" y="{}" text-anchor="middle">messages in a batch</text>"#, bottom + 50.0)?;
    writeln!(
        svg,
        r#"<text transform="translate(20 {down}) rotate(-90)" text-anchor="middle">records per second</text>"#
    )
}

fn curve(svg: &mut String, frame: &Frame, index: usize, line: &Line) -> std::fmt::Result {
    let (colour, dashes) = STYLES[index % STYLES.len()];
    let positions: Vec<_> =
        line.points.iter().map(|(batch, records)| (frame.x(number(*batch)), frame.y(*records))).collect();
    let path: Vec<_> = positions.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    writeln!(
        svg,
        r#"<polyline class="curve" stroke="{colour}" stroke-dasharray="{dashes}" points="{}"/>"#,
        path.join(" ")
    )?;
    for (x, y) in &positions {
        writeln!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{colour}"/>"#)?;
    }
    let (x, y) = (WIDTH - RIGHT + 24.0, TOP + 12.0 + 24.0 * number(index));
    let (end, middle, text) = (x + 28.0, y - 4.0, x + 36.0);
    writeln!(
        svg,
        r#"<line class="curve" stroke="{colour}" stroke-dasharray="{dashes}" x1="{x}" y1="{middle}" x2="{end}" y2="{middle}"/>"#
    )?;
    writeln!(svg, r#"<text x="{text}" y="{y}">{}</text>"#, line.name)
}

impl Frame {
    fn x(&self, batch: f64) -> f64 {
        position(batch, self.x, LEFT, WIDTH - RIGHT)
    }

    fn y(&self, records: f64) -> f64 {
        position(records, self.y, HEIGHT - BOTTOM, TOP)
    }
}

fn position(value: f64, (low, high): (i32, i32), from: f64, to: f64) -> f64 {
    from + (to - from) * (value.log10() - f64::from(low)) / f64::from(high - low)
}

/// The exponents of the powers of ten around these values, at least one decade apart.
fn decades(values: impl Iterator<Item = f64> + Clone) -> (i32, i32) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    let exponents = -3..=9;
    let below = exponents.clone().rev().find(|exponent| 10_f64.powi(*exponent) <= low).unwrap_or(*exponents.start());
    let above = exponents.clone().find(|exponent| 10_f64.powi(*exponent) >= high).unwrap_or(*exponents.end());
    (below, above.max(below + 1))
}
