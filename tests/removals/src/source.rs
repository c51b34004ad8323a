//! The text of a file, by the places that syn and cargo-mutants name.

use proc_macro2::{LineColumn, Span};

pub(crate) struct Source<'a> {
    text: &'a str,
    /// Offset of each line.
    lines: Vec<usize>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, lines: [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect() }
    }

    pub(crate) fn offset(&self, LineColumn { line, column }: LineColumn) -> usize {
        let start = self.lines[line - 1];
        self.text[start..].char_indices().nth(column).map_or(self.text.len(), |(at, _)| start + at)
    }

    pub(crate) fn range(&self, span: Span) -> (usize, usize) {
        (self.offset(span.start()), self.offset(span.end()))
    }

    pub(crate) fn code(&self, span: Span) -> &'a str {
        let (start, end) = self.range(span);
        &self.text[start..end]
    }
}
