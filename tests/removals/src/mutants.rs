//! Writes a switch for each mutant of cargo-mutants.

use std::error::Error;
use std::process::{Command, Stdio};

use proc_macro2::{LineColumn, Span};
use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, ExprBinary, ExprStruct, ExprUnary, Member};

use crate::condition::{Condition, Removal};
use crate::source::Source;
use crate::switches::{Switches, marks};

/// The modules that are measured: patterns of cargo-mutants.
const FILES: [&str; 6] = [
    "src/idempotency.rs",
    "src/idempotency/**",
    "src/stores/**",
    "src/sqs/**",
    "crates/http/src/**",
    "crates/postgres/src/**",
];

/// A mutant as cargo-mutants lists it.
#[derive(Debug, Deserialize)]
pub(crate) struct Mutant {
    pub file: String,
    genre: Genre,
    /// Path of the file, line, column and change.
    pub name: String,
    replacement: String,
    span: Range,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Range {
    start: Position,
    end: Position,
}

/// Both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

impl Mutant {
    /// A function that returns an `impl Trait` cannot return another value of another type.
    pub(crate) fn has_switch(&self) -> bool {
        self.genre != Genre::FnValue || !self.name.contains("-> impl ")
    }
}

/// The mutants of the project in the current directory, without those that `.cargo/mutants.toml` explains.
pub(crate) fn list() -> Result<Vec<Mutant>, Box<dyn Error>> {
    let files = FILES.iter().flat_map(|file| ["--file", file]);
    let listed = Command::new("cargo")
        .args(["mutants", "--workspace", "--list", "--json"])
        .args(files)
        .stderr(Stdio::inherit())
        .output()?;
    if !listed.status.success() {
        return Err("cargo mutants has listed no mutants".into());
    }
    Ok(serde_json::from_slice(&listed.stdout)?)
}

/// The mutants of a file, numbered from `first`, and its text with a switch for each, without those that are left out.
pub(crate) fn find(
    text: &str,
    mutants: &[&Mutant],
    first: u32,
    switch: &str,
    is_left_out: &dyn Fn(&Condition) -> bool,
) -> syn::Result<(Vec<Condition>, String)> {
    let syntax = syn::parse_file(text)?;
    let (source, found, switches) = (Source::new(text), Vec::new(), Switches::default());
    let mut writer = Writer { source, mutants, next: first, switch, is_left_out, found, switches };
    for mutant in mutants {
        match mutant.genre {
            Genre::FnValue if mutant.has_switch() => writer.return_at_once(mutant),
            Genre::MatchArmGuard => writer.replace_guard(mutant),
            _ => {}
        }
    }
    writer.visit_file(&syntax);
    Ok((writer.found, writer.switches.apply(text)))
}

struct Writer<'a> {
    source: Source<'a>,
    mutants: &'a [&'a Mutant],
    next: u32,
    switch: &'a str,
    is_left_out: &'a dyn Fn(&Condition) -> bool,
    found: Vec<Condition>,
    switches: Switches,
}

impl<'a> Writer<'a> {
    /// Adds a mutant. Returns its number, and the expression that says whether its switch is on.
    fn add(&mut self, Mutant { file, genre, name, span, .. }: &Mutant) -> Option<(u32, String)> {
        let code = name.strip_prefix(&format!("{file}:")).unwrap_or(name);
        let condition = Condition {
            number: self.next,
            file: file.clone(),
            line: span.start.line,
            function: String::new(),
            removal: if *genre == Genre::MatchArm { Removal::DeletedArm } else { Removal::Mutant },
            code: code.to_owned(),
        };
        if (self.is_left_out)(&condition) {
            return None;
        }
        self.next += 1;
        self.found.push(condition);
        Some((self.next - 1, format!("{}({})", self.switch, self.next - 1)))
    }

    fn return_at_once(&mut self, mutant: &Mutant) {
        if let Some((number, is_on)) = self.add(mutant) {
            let ([open, close], at) = (marks(number), self.source.offset(mutant.span.start.into()));
            let text = format!("{open}if {is_on} {{ return {}; }}{close} ", mutant.replacement);
            self.switches.insert_in_front(at, text);
        }
    }

    fn replace_guard(&mut self, mutant: &Mutant) {
        if let Some((number, is_on)) = self.add(mutant) {
            let before =
                if mutant.replacement == "true" { format!("({is_on} || (") } else { format!("(!{is_on} && (") };
            let range = [mutant.span.start, mutant.span.end].map(|end| self.source.offset(end.into()));
            self.switches.surround(range.into(), number, [before, "))".to_owned()]);
        }
    }

    /// The mutants of this kind that start here. The span of a field may include its comma.
    fn at(&self, genre: Genre, span: Span) -> Vec<&'a Mutant> {
        let is_here = |mutant: &&&Mutant| mutant.genre == genre && LineColumn::from(mutant.span.start) == span.start();
        self.mutants.iter().filter(is_here).copied().collect()
    }

    /// Replaces the whole code by another one if a mutant of this kind is at `at`.
    fn replace(&mut self, genre: Genre, at: Span, whole: Span, other: impl Fn(&Source<'a>, &Mutant) -> String) {
        for mutant in self.at(genre, at) {
            if let Some((number, is_on)) = self.add(mutant) {
                let before = format!("(if {is_on} {{ {} }} else {{ ", other(&self.source, mutant));
                self.switches.surround(self.source.range(whole), number, [before, " })".to_owned()]);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Writer<'_> {
    fn visit_expr_binary(&mut self, operation: &'ast ExprBinary) {
        let (left, right) = (operation.left.span(), operation.right.span());
        self.replace(Genre::BinaryOperator, operation.op.span(), operation.span(), |source, mutant| {
            format!("{} {} {}", source.code(left), mutant.replacement, source.code(right))
        });
        visit::visit_expr_binary(self, operation);
    }

    fn visit_expr_unary(&mut self, operation: &'ast ExprUnary) {
        let operand = operation.expr.span();
        self.replace(Genre::UnaryOperator, operation.op.span(), operation.span(), |source, _| {
            source.code(operand).to_owned()
        });
        visit::visit_expr_unary(self, operation);
    }

    /// A field that is deleted has the value that the rest of the literal gives it.
    fn visit_expr_struct(&mut self, literal: &'ast ExprStruct) {
        if let Some(rest) = &literal.rest {
            for field in literal.fields.iter().filter(|field| field.colon_token.is_some()) {
                let Member::Named(name) = &field.member else { continue };
                self.replace(Genre::StructField, field.span(), field.expr.span(), |source, _| {
                    format!("({}).{name}", source.code(rest.span()))
                });
            }
        }
        visit::visit_expr_struct(self, literal);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        for mutant in self.at(Genre::MatchArm, arm.span()) {
            let Some((number, is_on)) = self.add(mutant) else { continue };
            if let Some((_, guard)) = &arm.guard {
                let texts = [format!("(!{is_on} && ("), "))".to_owned()];
                self.switches.surround(self.source.range(guard.span()), number, texts);
            } else {
                let ([open, close], (_, end)) = (marks(number), self.source.range(arm.pat.span()));
                self.switches.insert_behind(end, format!("{open} if !{is_on}{close}"));
            }
        }
        visit::visit_arm(self, arm);
    }
}

impl From<Position> for LineColumn {
    fn from(Position { line, column }: Position) -> Self {
        Self { line, column: column - 1 }
    }
}
