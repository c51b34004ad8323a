//! JSON documents: <https://www.rfc-editor.org/rfc/rfc8259>, and the values at pointers:
//! <https://www.rfc-editor.org/rfc/rfc6901>.

use history::Rng;

use super::decimal::Decimal;

/// A document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Document {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(&'static str),
    /// A text of half of a surrogate pair, which is not Unicode.
    Surrogate(u16),
    List(Vec<Self>),
    /// Names, which may be repeated, and their values.
    Object(Vec<(&'static str, Self)>),
}

/// Names with characters that pointers escape, and names that look like indexes.
const NAMES: [&str; 9] = ["a", "b/c", "d~e", "~1", "", "0", "01", "ä", "\"q\\"];

const TEXTS: [&str; 8] = ["", "a", "1", "ä\n\"", "n", "\u{8}\u{c}\r\t/\\", "€😀", LONG];

/// The length of its text has two bytes in the canonical form.
const LONG: &str = "payments of a hundred and thirty characters, and a few more, so that there is more than one byte for \
                    their number, and \"quotes\" far from the start";

/// More lists than may be within each other.
const MANY: usize = 130;

impl Document {
    pub(super) fn of(rng: &mut Rng, depth: u64) -> Self {
        match rng.draw(if depth == 0 { 3..10 } else { 0..10 }) {
            0 => Self::List((0..rng.draw(0..4)).map(|_| Self::of(rng, depth - 1)).collect()),
            1 | 2 => Self::Object((0..rng.draw(0..5)).map(|_| (*rng.pick(&NAMES), Self::of(rng, depth - 1))).collect()),
            3 => Self::Null,
            4 => Self::Bool(rng.happens(500)),
            5..=7 => Self::Number(Decimal::of(rng)),
            _ => match rng.draw(0..20) {
                0 => Self::Surrogate(*rng.pick(&[0xd800, 0xdbff, 0xdc00, 0xdfff])),
                1 => Self::List(vec![Self::List(Vec::new()); MANY]),
                _ => Self::Text(rng.pick::<&str>(&TEXTS)),
            },
        }
    }

    /// So many lists within each other.
    pub(super) fn nested(depth: usize) -> Self {
        (1..depth).fold(Self::List(Vec::new()), |inner, _| Self::List(vec![inner]))
    }

    /// The value at a pointer. Of a repeated name it is the last one.
    pub(super) fn at(&self, pointer: &str) -> Option<&Self> {
        let Some(rest) = pointer.strip_prefix('/') else { return Some(self).filter(|_| pointer.is_empty()) };
        let end = rest.find('/').unwrap_or(rest.len());
        let (step, rest) = rest.split_at(end);
        let name = step.replace("~1", "/").replace("~0", "~");
        let value = match self {
            Self::Object(entries) => entries.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value),
            Self::List(items) => {
                let is_index = name == "0" || name.bytes().all(|byte| byte.is_ascii_digit()) && !name.starts_with('0');
                items.get(name.parse::<usize>().ok().filter(|_| is_index)?)
            }
            _ => None,
        };
        value?.at(rest)
    }

    /// A pointer to a value, or to none.
    pub(super) fn pointer(&self, rng: &mut Rng) -> String {
        let step = match self {
            Self::Object(entries) if !entries.is_empty() && rng.happens(900) => rng.pick(entries).0.to_owned(),
            Self::List(items) if rng.happens(900) => {
                let at = rng.draw(0..items.len() as u64 + 1);
                rng.pick(&[at.to_string(), at.to_string(), format!("0{at}"), format!("+{at}"), "-".to_owned()]).clone()
            }
            _ => (*rng.pick(&NAMES)).to_owned(),
        };
        let here = format!("/{}", step.replace('~', "~0").replace('/', "~1"));
        match self.at(&here) {
            Some(value @ (Self::List(_) | Self::Object(_))) if rng.happens(700) => here + &value.pointer(rng),
            _ => here,
        }
    }

    /// The same document, or one with another value somewhere.
    pub(super) fn changed(&self, rng: &mut Rng) -> Self {
        match self {
            _ if rng.happens(300) => self.clone(),
            Self::List(items) if !items.is_empty() => {
                let mut items = items.clone();
                let at = usize::try_from(rng.draw(0..items.len() as u64)).unwrap_or_default();
                items[at] = items[at].changed(rng);
                Self::List(items)
            }
            Self::Object(entries) if !entries.is_empty() => {
                let mut entries = entries.clone();
                let at = usize::try_from(rng.draw(0..entries.len() as u64)).unwrap_or_default();
                entries[at].1 = entries[at].1.changed(rng);
                Self::Object(entries)
            }
            _ => Self::of(rng, 1),
        }
    }

    /// Its text, with white space, escapes, and names in another order, as far as these do not matter.
    pub(super) fn written(&self, rng: &mut Rng) -> String {
        let space = |rng: &mut Rng| *rng.pick(&["", "", "", " ", "\n\t"]);
        let text = match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Number(number) => number.written(rng),
            Self::Surrogate(code) if rng.happens(500) => format!("\"\\u{code:04X}\""),
            Self::Surrogate(code) => format!("\"\\u{code:04x}\""),
            Self::Text(text) => written_text(text, rng),
            Self::List(items) => {
                let items: Vec<_> =
                    items.iter().map(|item| [space(rng), &item.written(rng), space(rng)].concat()).collect();
                format!("[{}]", items.join(","))
            }
            Self::Object(entries) => {
                let mut entries = entries.clone();
                if rng.happens(500) {
                    // The values of a repeated name keep their order.
                    entries.sort_by_key(|(name, _)| std::cmp::Reverse(*name));
                }
                let entries: Vec<_> = entries
                    .iter()
                    .map(|(name, value)| format!("{}:{}{}", written_text(name, rng), space(rng), value.written(rng)))
                    .collect();
                format!("{{{}}}", entries.join(","))
            }
        };
        [space(rng), &text, space(rng)].concat()
    }
}

fn written_text(text: &str, rng: &mut Rng) -> String {
    let mut written = String::new();
    for c in text.chars() {
        let short = match c {
            '"' | '\\' | '/' => Some(c),
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            _ => None,
        };
        match short {
            Some(short) if rng.happens(500) => written.extend(['\\', short]),
            Some('/') | None if rng.happens(850) => written.push(c),
            _ => write_escape(c, rng.happens(500), &mut written),
        }
    }
    format!("\"{written}\"")
}

/// Two units are a surrogate pair.
fn write_escape(c: char, is_upper: bool, text: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        let unit = if is_upper { format!("{unit:04X}") } else { format!("{unit:04x}") };
        text.extend(["\\u", &unit]);
    }
}

/// Whether two values are equal, each of which may be missing. The values of a repeated name count all.
pub(super) fn equals(one: Option<&Document>, two: Option<&Document>) -> bool {
    sorted(one.unwrap_or(&Document::Null)) == sorted(two.unwrap_or(&Document::Null))
}

fn sorted(document: &Document) -> Document {
    match document {
        Document::List(items) => Document::List(items.iter().map(sorted).collect()),
        Document::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().map(|(name, value)| (*name, sorted(value))).collect();
            entries.sort_by_key(|(name, _)| *name);
            Document::Object(entries)
        }
        other => other.clone(),
    }
}
