//! Splits a text into statements, and parses those without tables, such as `BEGIN` and `SET`.

use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};

use crate::postgres::error::{Result, SqlError};
use crate::postgres::settings::Lasts;

/// A statement and its text.
#[derive(Clone, Debug)]
pub(in crate::postgres) struct Parsed {
    pub(in crate::postgres) text: String,
    pub(in crate::postgres) kind: Kind,
}

#[derive(Clone, Debug)]
pub(in crate::postgres) enum Kind {
    Sql(Box<ast::Statement>),
    Command(Command),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::postgres) enum Command {
    Begin {
        read_only: Option<bool>,
    },
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    /// `None` for the default.
    Set {
        name: String,
        value: Option<String>,
        lasts: Lasts,
    },
    SetTransaction {
        read_only: Option<bool>,
    },
    Reset(String),
    ResetAll,
    /// `RESET ROLE` and `RESET SESSION AUTHORIZATION`: the user is always that of the login.
    ResetUser,
    Show(String),
    /// What is discarded. Only prepared statements exist.
    Discard(String),
    CloseAll,
    Unlisten,
    /// `None` for all.
    Deallocate(Option<String>),
    Prepare {
        name: String,
        statement: String,
    },
}

/// The statements of a text.
pub(in crate::postgres) fn parse(text: &str) -> Result<Vec<Parsed>> {
    let syntax = |error: &dyn ToString| SqlError::new("42601", error.to_string()).by("scanner_yyerror");
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize().map_err(|error| syntax(&error))?;
    let mut statements = Vec::new();
    for tokens in tokens.split(|token| *token == Token::SemiColon) {
        let words: Vec<_> = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).cloned().collect();
        if words.is_empty() {
            continue;
        }
        let text: String = tokens.iter().map(ToString::to_string).collect();
        let text = text.trim().to_owned();
        let kind = if let Some(command) = command(&words, &text)? {
            Kind::Command(command)
        } else {
            let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &text).map_err(|error| syntax(&error))?;
            let statement = parsed.into_iter().next().ok_or_else(|| syntax(&"syntax error"))?;
            Kind::Sql(Box::new(statement))
        };
        statements.push(Parsed { text, kind });
    }
    Ok(statements)
}

/// The words of a command in lower case, and its texts in quotes as they are.
fn word(token: &Token) -> String {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
        Token::Word(word) => word.value.clone(),
        Token::SingleQuotedString(text) => text.clone(),
        other => other.to_string(),
    }
}

fn command(tokens: &[Token], text: &str) -> Result<Option<Command>> {
    let words: Vec<String> = tokens.iter().map(word).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let unsupported = || Err(SqlError::unsupported(text));
    Ok(Some(match words.as_slice() {
        ["select" | "insert" | "update" | "delete" | "with" | "values", ..] => return Ok(None),
        ["begin", "transaction" | "work", modes @ ..]
        | ["start", "transaction", modes @ ..]
        | ["begin", modes @ ..] => Command::Begin { read_only: modes_of(modes, text)? },
        ["commit" | "end"] | ["commit" | "end", "transaction" | "work"] => Command::Commit,
        ["rollback" | "abort"] | ["rollback" | "abort", "transaction" | "work"] => Command::Rollback,
        ["savepoint", name] => Command::Savepoint((*name).to_owned()),
        ["rollback", "to", "savepoint", name]
        | ["rollback", "to", name]
        | ["rollback", "transaction" | "work", "to", "savepoint", name]
        | ["rollback", "transaction" | "work", "to", name] => Command::RollbackTo((*name).to_owned()),
        ["release", "savepoint", name] | ["release", name] => Command::Release((*name).to_owned()),
        ["set", "transaction", modes @ ..] => Command::SetTransaction { read_only: modes_of(modes, text)? },
        ["set", "session", "authorization", "default"]
        | ["set", "role", "none"]
        | ["reset", "role"]
        | ["reset", "session", "authorization"] => Command::ResetUser,
        ["set", "local", rest @ ..] => set(rest, Lasts::Transaction, text)?,
        ["set", "session", rest @ ..] | ["set", rest @ ..] => set(rest, Lasts::Session, text)?,
        ["reset", "all"] => Command::ResetAll,
        ["reset", name @ ..] => Command::Reset(name.concat()),
        ["show", name @ ..] => Command::Show(name.concat()),
        ["discard", what] => Command::Discard((*what).to_owned()),
        ["close", "all"] => Command::CloseAll,
        ["unlisten", _] => Command::Unlisten,
        ["deallocate", "prepare", rest @ ..] | ["deallocate", rest @ ..] => match rest {
            ["all"] => Command::Deallocate(None),
            [name] => Command::Deallocate(Some((*name).to_owned())),
            _ => return unsupported(),
        },
        ["prepare", name, "as", ..] => {
            let after = tokens.iter().position(|token| word(token) == "as").unwrap_or(0) + 1;
            let statement = tokens[after..].iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            Command::Prepare { name: (*name).to_owned(), statement }
        }
        [first, ..] if first.chars().all(|letter| letter.is_ascii_alphabetic()) => match *first {
            "alter" | "analyze" | "call" | "close" | "copy" | "create" | "declare" | "do" | "drop" | "execute"
            | "explain" | "fetch" | "grant" | "listen" | "lock" | "merge" | "notify" | "prepare" | "revoke"
            | "table" | "truncate" | "vacuum" | "discard" | "unlisten" | "rollback" | "commit" => return unsupported(),
            _ => {
                return Err(
                    SqlError::new("42601", format!("syntax error at or near \"{first}\"")).by("scanner_yyerror")
                );
            }
        },
        _ => return Err(SqlError::new("42601", "syntax error").by("scanner_yyerror")),
    }))
}

/// Whether the transaction is read-only, if the modes say so.
fn modes_of(modes: &[&str], text: &str) -> Result<Option<bool>> {
    Ok(match modes {
        [] => None,
        [",", rest @ ..] | ["isolation", "level", "read", "committed", rest @ ..] => modes_of(rest, text)?,
        ["read", "only", rest @ ..] => modes_of(rest, text)?.or(Some(true)),
        ["read", "write", rest @ ..] => modes_of(rest, text)?.or(Some(false)),
        _ => return Err(SqlError::unsupported(text)),
    })
}

fn set(words: &[&str], lasts: Lasts, text: &str) -> Result<Command> {
    let is_equals = |word: &&str| matches!(*word, "=" | "to");
    let Some(at) = words.iter().position(is_equals) else { return Err(SqlError::unsupported(text)) };
    let value = words[at + 1..].concat();
    if value.is_empty() {
        return Err(SqlError::new("42601", "syntax error at end of input").by("scanner_yyerror"));
    }
    let value = (words[at + 1..] != ["default"]).then_some(value);
    Ok(Command::Set { name: words[..at].concat(), value, lasts })
}
