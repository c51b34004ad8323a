//! Finds the conditions of a file.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Arm, Attribute, BinOp, Block, Expr, ExprBinary, ExprConst, ExprIf, ExprMatch, ExprMethodCall, ExprWhile,
    ImplItemFn, Item, ItemFn, Local, Pat, Signature, Stmt, TraitItemFn, Type,
};

use crate::condition::{Condition, Removal};
use crate::source::Source;
use crate::switches::{Switches, marks};
use crate::syntax::{has_let, is_and, is_comparison, is_or, is_test, matches_all, returned, text, value_at_once};

/// Methods that return another value of the type of their receiver.
const SAME_TYPE: [&str; 16] = [
    "and_then",
    "clamp",
    "filter",
    "max",
    "min",
    "or",
    "or_else",
    "pool_idle_timeout",
    "redirect",
    "rev",
    "saturating_add",
    "saturating_sub",
    "to_ascii_lowercase",
    "trim",
    "trim_end",
    "trim_start",
];

/// Methods whose closure is a condition.
const WITH_CONDITION: [&str; 12] = [
    "all",
    "any",
    "filter",
    "find",
    "is_err_and",
    "is_none_or",
    "is_ok_and",
    "is_some_and",
    "position",
    "retain",
    "rposition",
    "take_while",
];

/// Starts of statements that log.
const LOGS: [&str; 2] = ["tracing::", "debug_assert"];

/// Longest code of an arm that another arm may have, bytes.
const LONGEST_ARM: usize = 400;

/// The conditions of a file, numbered from `first`, and its text with a switch for each. Those that are left out are
/// not removed. `switch` is the path of the function that says whether a switch is on.
pub(crate) fn find(
    file: &str,
    text: &str,
    first: u32,
    switch: &str,
    is_left_out: &dyn Fn(&Condition) -> bool,
) -> syn::Result<(Vec<Condition>, String)> {
    let syntax = syn::parse_file(text)?;
    let (found, switches, path) = (Vec::new(), Switches::default(), Vec::new());
    let source = Source::new(text);
    let mut finder = Finder { file, source, next: first, switch, is_left_out, found, switches, path };
    finder.visit_file(&syntax);
    let Finder { found, switches, .. } = finder;
    Ok((found, switches.apply(text)))
}

struct Finder<'a> {
    file: &'a str,
    source: Source<'a>,
    next: u32,
    switch: &'a str,
    is_left_out: &'a dyn Fn(&Condition) -> bool,
    found: Vec<Condition>,
    switches: Switches,
    /// Type and function.
    path: Vec<String>,
}

impl Finder<'_> {
    /// Adds a condition. Returns its number, and the expression that says whether its switch is on.
    fn add(&mut self, span: Span, removal: Removal) -> Option<(u32, String)> {
        let number = self.next;
        let code = self.source.code(span).split_whitespace().collect::<Vec<_>>().join(" ");
        let (file, line, function) = (self.file.to_owned(), span.start().line, self.path.join("::"));
        let condition = Condition { number, file, line, function, removal, code };
        if (self.is_left_out)(&condition) {
            return None;
        }
        self.next += 1;
        self.found.push(condition);
        Some((number, format!("{}({number})", self.switch)))
    }

    fn surround(&mut self, span: Span, removal: Removal, texts: impl FnOnce(&str) -> [String; 2]) {
        if let Some((number, is_on)) = self.add(span, removal) {
            self.switches.surround(self.source.range(span), number, texts(&is_on));
        }
    }

    fn always(&mut self, condition: &Expr) {
        self.surround(condition.span(), Removal::True, |is_on| [format!("({is_on} || ("), "))".to_owned()]);
    }

    fn never(&mut self, condition: &Expr) {
        self.surround(condition.span(), Removal::False, |is_on| [format!("(!{is_on} && ("), "))".to_owned()]);
    }

    /// A whole condition. The operands of `&&` and `||` are conditions of their own.
    fn condition(&mut self, condition: &Expr) {
        match condition {
            Expr::Lit(_) => {}
            Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) if has_let(condition) => {
                self.condition(left);
                if !has_let(right) {
                    self.always(right);
                }
            }
            _ if has_let(condition) => {}
            _ if is_and(condition) => self.never(condition),
            _ if is_or(condition) => self.always(condition),
            _ => {
                self.always(condition);
                self.never(condition);
            }
        }
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        // A constant function cannot ask for a switch.
        if is_test(attributes) || signature.constness.is_some() {
            return;
        }
        self.path.push(signature.ident.to_string());
        if let (Some(first), Some(value)) = (body.stmts.first(), value_at_once(&signature.output))
            && let Some((_, is_on)) = self.add(body.span(), Removal::Body)
        {
            let (start, _) = self.source.range(first.span());
            self.switches.insert_in_front(start, format!("if {is_on} {{ return {value}; }} "));
        }
        if let (true, Some(Stmt::Expr(value, None))) = (returned(&signature.output) == "bool", body.stmts.last())
            && !matches!(value, Expr::If(_) | Expr::Match(_) | Expr::Block(_))
        {
            self.condition(value);
        }
        visit::visit_block(self, body);
        self.path.pop();
    }

    /// An arm does what the next one that does something else does.
    fn other_arm(&mut self, arms: &[Arm], at: usize) {
        let code = |arm: &Arm| self.source.code(arm.body.span());
        let own = code(&arms[at]);
        let Some(other) = arms[at + 1..].iter().chain(&arms[..at]).map(code).find(|other| *other != own) else {
            return;
        };
        // A comment would end behind the switch.
        if other.contains("//") || other.len() > LONGEST_ARM {
            return;
        }
        let other = other.replace('\n', " ");
        self.surround(arms[at].body.span(), Removal::OtherArm, |is_on| {
            [format!("{{ if {is_on} {{ {other} }} else {{ "), " } }".to_owned()]
        });
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(module) if is_test(&module.attrs) => {}
            Item::Const(_) | Item::Static(_) | Item::Macro(_) => {}
            Item::Impl(implementation) => {
                self.path.push(text(&implementation.self_ty));
                visit::visit_item(self, item);
                self.path.pop();
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(body) = &function.default {
            self.function(&function.attrs, &function.sig, body);
        }
    }

    fn visit_expr_const(&mut self, _: &'ast ExprConst) {}

    fn visit_type(&mut self, _: &'ast Type) {}

    fn visit_pat(&mut self, _: &'ast Pat) {}

    fn visit_expr_if(&mut self, branch: &'ast ExprIf) {
        self.condition(&branch.cond);
        visit::visit_expr_if(self, branch);
    }

    /// Without a condition that always holds: such a loop does not end.
    fn visit_expr_while(&mut self, repetition: &'ast ExprWhile) {
        if !has_let(&repetition.cond) {
            self.never(&repetition.cond);
        }
        visit::visit_expr_while(self, repetition);
    }

    fn visit_expr_binary(&mut self, operation: &'ast ExprBinary) {
        for operand in [&operation.left, &operation.right] {
            match operation.op {
                _ if has_let(operand) || has_let(&operation.left) => {}
                BinOp::And(_) if !is_and(operand) => self.always(operand),
                BinOp::Or(_) if !is_or(operand) => self.never(operand),
                _ => {}
            }
        }
        visit::visit_expr_binary(self, operation);
    }

    fn visit_expr_match(&mut self, choice: &'ast ExprMatch) {
        let last_matches_all = choice.arms.last().is_some_and(|arm| arm.guard.is_none() && matches_all(&arm.pat));
        for (at, arm) in choice.arms.iter().enumerate() {
            if let Some((_, guard)) = &arm.guard {
                self.condition(guard);
            } else if last_matches_all
                && at + 1 < choice.arms.len()
                && let Some((number, is_on)) = self.add(arm.pat.span(), Removal::NoArm)
            {
                let ([open, close], (_, end)) = (marks(number), self.source.range(arm.pat.span()));
                self.switches.insert_behind(end, format!("{open} if !{is_on}{close}"));
            }
            self.other_arm(&choice.arms, at);
        }
        visit::visit_expr_match(self, choice);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let method = call.method.to_string();
        if SAME_TYPE.contains(&&*method)
            && let Some((number, is_on)) = self.add(call.span(), Removal::Call)
        {
            let (range, (_, receiver_end)) = (self.source.range(call.span()), self.source.range(call.receiver.span()));
            self.switches.surround(range, number, ["({ let without = ".to_owned(), " } })".to_owned()]);
            self.switches.insert_behind(receiver_end, format!("; if {is_on} {{ without }} else {{ without"));
        }
        for argument in call.args.iter().filter(|_| WITH_CONDITION.contains(&&*method)) {
            let Expr::Closure(closure) = argument else { continue };
            match &*closure.body {
                Expr::Block(block) => {
                    if let Some(Stmt::Expr(value, None)) = block.block.stmts.last() {
                        self.condition(value);
                    }
                }
                Expr::Match(_) | Expr::If(_) => {}
                value => self.condition(value),
            }
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if let Some(init) = &local.init
            && is_comparison(&init.expr)
        {
            self.condition(&init.expr);
        }
        visit::visit_local(self, local);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        use Expr::{Break, Continue, ForLoop, If, Loop, Match, Return, While};
        let can_be_left_out = match statement {
            Stmt::Expr(Return(_) | Break(_) | Continue(_) | If(_) | Match(_) | Loop(_) | While(_), _) => false,
            Stmt::Expr(_, Some(_)) | Stmt::Expr(ForLoop(_), None) => true,
            Stmt::Macro(call) => call.semi_token.is_some(),
            Stmt::Expr(_, None) | Stmt::Local(_) | Stmt::Item(_) => false,
        };
        let code = self.source.code(statement.span());
        if can_be_left_out && !LOGS.iter().any(|log| code.starts_with(log)) {
            self.surround(statement.span(), Removal::Statement, |is_on| [format!("if !{is_on} {{ "), " }".to_owned()]);
        }
        visit::visit_stmt(self, statement);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str =
        "fn f(n: u8) -> u8 {\n    if n > 1 && n < 9 { g(); }\n    match n { 0 => 1, _ => n.min(5) }\n}\n";

    #[test]
    fn each_condition_of_a_file_has_a_switch() {
        let (found, switched) = find("f.rs", CODE, 7, "off", &|_| false).unwrap();
        let found: Vec<_> =
            found.iter().map(|condition| (condition.line, condition.removal, &*condition.code)).collect();
        let expected = [
            (2, Removal::False, "n > 1 && n < 9"),
            (2, Removal::True, "n > 1"),
            (2, Removal::True, "n < 9"),
            (2, Removal::Statement, "g();"),
            (3, Removal::NoArm, "0"),
            (3, Removal::OtherArm, "1"),
            (3, Removal::OtherArm, "n.min(5)"),
            (3, Removal::Call, "n.min(5)"),
        ];
        assert_eq!(found, expected);
        assert!(switched.contains("if /*<7*/(!off(7) && (/*<8*/(off(8) || (n > 1))/*8>*/ && "), "{switched}");
        assert_eq!(switched.lines().count(), CODE.lines().count());
    }

    #[test]
    fn a_condition_that_is_left_out_has_no_switch() {
        let (found, switched) = find("f.rs", CODE, 1, "off", &|_| true).unwrap();
        assert!(found.is_empty());
        assert_eq!(switched, CODE);
    }
}
