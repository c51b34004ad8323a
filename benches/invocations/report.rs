//! The tables of figures, and the targets with whether they are met.

use std::error::Error;

use benches::figures::short;
use benches::table::Table;

#[derive(Default)]
pub(crate) struct Report {
    targets: Vec<Target>,
    tables: Vec<(String, Table)>,
    /// SVG.
    pub(crate) plot: Option<String>,
    /// Whether a measurement failed.
    pub(crate) failed: bool,
}

struct Target {
    what: String,
    measured: String,
    limit: String,
    met: &'static str,
}

impl Report {
    /// Adds a target.
    pub(crate) fn target(&mut self, what: &str, measured: String, limit: &str, met: bool) {
        let met = if met { "yes" } else { "**no**" };
        self.targets.push(Target { what: what.to_owned(), measured, limit: limit.to_owned(), met });
    }

    /// Adds a measurement that failed, and prints its error. The other parts still run.
    pub(crate) fn failure(&mut self, what: &str, error: &dyn Error) {
        let error = error.to_string();
        eprintln!("{what}: {error}");
        // The rest is the function's output and may be long.
        let start: String = error.lines().next().unwrap_or_default().chars().take(80).collect();
        self.target(what, format!("failed: {start}"), "–", false);
        self.failed = true;
    }

    /// Adds an upper limit. NaN, which means not measured, adds none.
    pub(crate) fn at_most(&mut self, what: &str, measured: f64, most: f64) {
        if measured.is_finite() {
            self.target(what, short(measured), &format!("≤ {most}"), measured <= most);
        }
    }

    /// Adds a lower limit. NaN, which means not measured, adds none.
    pub(crate) fn at_least(&mut self, what: &str, measured: f64, least: f64) {
        if measured.is_finite() {
            self.target(what, short(measured), &format!("≥ {least}"), measured >= least);
        }
    }

    pub(crate) fn table(&mut self, title: &str, table: Table) {
        self.tables.push((title.to_owned(), table));
    }

    pub(crate) fn text(&self) -> String {
        let mut targets = Table::new(&["what", "measured", "target", "met"]);
        for Target { what, measured, limit, met } in &self.targets {
            targets.row([what.clone(), measured.clone(), limit.clone(), (*met).to_owned()]);
        }
        let mut text = String::new();
        if !self.targets.is_empty() {
            text.push_str(&section("Targets", &targets));
        }
        text.extend(self.tables.iter().map(|(title, table)| section(title, table)));
        text
    }
}

fn section(title: &str, table: &Table) -> String {
    format!("### {title}\n\n{}\n", table.text())
}
