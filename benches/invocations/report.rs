//! What was measured, and whether it is what it has to be.

use std::error::Error;

use crate::figures::short;
use crate::table::Table;

#[derive(Default)]
pub(crate) struct Report {
    bars: Vec<Bar>,
    tables: Vec<(String, Table)>,
    /// SVG.
    pub(crate) plot: Option<String>,
    /// Whether something could not be measured.
    pub(crate) failed: bool,
}

/// What must hold.
struct Bar {
    what: String,
    measured: String,
    limit: String,
    holds: &'static str,
}

impl Report {
    pub(crate) fn claim(&mut self, what: &str, measured: String, bar: &str, holds: bool) {
        let holds = if holds { "yes" } else { "**no**" };
        self.bars.push(Bar { what: what.to_owned(), measured, limit: bar.to_owned(), holds });
    }

    /// What could not be measured. The rest of the figures is not lost with it.
    pub(crate) fn failure(&mut self, what: &str, error: &dyn Error) {
        let error = error.to_string();
        eprintln!("{what}: {error}");
        // What the function said is in the line above, and may be long.
        let start: String = error.lines().next().unwrap_or_default().chars().take(80).collect();
        self.claim(what, format!("failed: {start}"), "–", false);
        self.failed = true;
    }

    /// Of what was not measured there is nothing to say.
    pub(crate) fn at_most(&mut self, what: &str, measured: f64, most: f64) {
        if measured.is_finite() {
            self.claim(what, short(measured), &format!("≤ {most}"), measured <= most);
        }
    }

    /// Of what was not measured there is nothing to say.
    pub(crate) fn at_least(&mut self, what: &str, measured: f64, least: f64) {
        if measured.is_finite() {
            self.claim(what, short(measured), &format!("≥ {least}"), measured >= least);
        }
    }

    pub(crate) fn table(&mut self, title: &str, table: Table) {
        self.tables.push((title.to_owned(), table));
    }

    pub(crate) fn text(&self) -> String {
        let mut bars = Table::new(&["what", "measured", "bar", "holds"]);
        for Bar { what, measured, limit, holds } in &self.bars {
            bars.row([what.clone(), measured.clone(), limit.clone(), (*holds).to_owned()]);
        }
        let mut text = String::new();
        if !self.bars.is_empty() {
            text.push_str(&section("What must hold", &bars));
        }
        text.extend(self.tables.iter().map(|(title, table)| section(title, table)));
        text
    }
}

fn section(title: &str, table: &Table) -> String {
    format!("### {title}\n\n{}\n", table.text())
}
