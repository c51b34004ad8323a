//! Markdown tables with aligned columns.

pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(ToString::to_string).collect()] }
    }

    pub fn row<const COLUMNS: usize>(&mut self, row: [String; COLUMNS]) {
        self.rows.push(row.into());
    }

    pub fn text(&self) -> String {
        let columns = self.rows[0].len();
        let width = |at: usize| self.rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..columns).map(width).collect();
        let line = |row: &[String]| {
            let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let mut text = line(&self.rows[0]) + &line(&rule);
        text.extend(self.rows[1..].iter().map(|row| line(row)));
        text
    }
}
