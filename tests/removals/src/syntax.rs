//! What the finder asks of the code.

use quote::ToTokens;
use syn::{Attribute, BinOp, Expr, ExprBinary, Pat, ReturnType};

pub(crate) fn is_and(condition: &Expr) -> bool {
    matches!(condition, Expr::Binary(ExprBinary { op: BinOp::And(_), .. }))
}

pub(crate) fn is_or(condition: &Expr) -> bool {
    matches!(condition, Expr::Binary(ExprBinary { op: BinOp::Or(_), .. }))
}

pub(crate) fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => has_let(left) || has_let(right),
        _ => false,
    }
}

pub(crate) fn is_comparison(value: &Expr) -> bool {
    use BinOp::{And, Eq, Ge, Gt, Le, Lt, Ne, Or};
    match value {
        Expr::Binary(ExprBinary { op, .. }) => {
            matches!(op, And(_) | Or(_) | Eq(_) | Ne(_) | Lt(_) | Le(_) | Gt(_) | Ge(_))
        }
        Expr::Macro(call) => call.mac.path.is_ident("matches"),
        _ => false,
    }
}

pub(crate) fn matches_all(pattern: &Pat) -> bool {
    match pattern {
        Pat::Wild(_) => true,
        Pat::Ident(name) => name.subpat.is_none() && name.ident.to_string().starts_with(char::is_lowercase),
        _ => false,
    }
}

pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| ["#[test]", "#[cfg(test)]"].contains(&&*text(attribute)))
}

/// What a function of this type can return at once.
pub(crate) fn value_at_once(output: &ReturnType) -> Option<&'static str> {
    let returned = returned(output);
    match &*returned {
        "()" => Some(""),
        "Duration" => Some("Duration::ZERO"),
        _ if returned.starts_with("Option<") => Some("None"),
        _ if returned.starts_with("Result<(),") => Some("Ok(())"),
        _ => None,
    }
}

pub(crate) fn returned(output: &ReturnType) -> String {
    match output {
        ReturnType::Default => "()".to_owned(),
        ReturnType::Type(_, returned) => text(returned),
    }
}

/// The code of a syntax node without spaces.
pub(crate) fn text(node: &impl ToTokens) -> String {
    node.to_token_stream().to_string().replace(' ', "")
}
