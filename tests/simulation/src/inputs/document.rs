//! JSON documents: <https://www.rfc-editor.org/rfc/rfc8259>, and the values at pointers:
//! <https://www.rfc-editor.org/rfc/rfc6901>.

use history::Rng;

/// A document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Document {
    Null,
    Bool(bool),
    Number(i64),
    Text(&'static str),
    List(Vec<Self>),
    /// Names, which may be repeated, and their values.
    Object(Vec<(&'static str, Self)>),
}

/// Names with characters that pointers escape, and names that look like indexes.
const NAMES: [&str; 9] = ["a", "b/c", "d~e", "~1", "", "0", "01", "ä", "\"q\\"];

const TEXTS: [&str; 5] = ["", "a", "1", "ä\n\"", "n"];

impl Document {
    pub(super) fn of(rng: &mut Rng, depth: u64) -> Self {
        match rng.draw(if depth == 0 { 3..10 } else { 0..10 }) {
            0 => Self::List((0..rng.draw(0..4)).map(|_| Self::of(rng, depth - 1)).collect()),
            1 | 2 => Self::Object((0..rng.draw(0..5)).map(|_| (*rng.pick(&NAMES), Self::of(rng, depth - 1))).collect()),
            3 => Self::Null,
            4 => Self::Bool(rng.happens(500)),
            5..=7 => Self::Number(*rng.pick(&[0, 1, -1, 10, 2500, 9_007_199_254_740_993, i64::MIN])),
            _ => Self::Text(rng.pick::<&str>(&TEXTS)),
        }
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
            Self::Number(number) => match rng.draw(0..4) {
                0 => format!("{number}.0"),
                1 if *number != 0 => format!("{number}0E-1"),
                2 if number % 10 == 0 && *number != 0 => format!("{}e1", number / 10),
                _ => number.to_string(),
            },
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
    let character = |c: char| match c {
        '"' | '\\' | '\n' => format!("\\u{:04x}", u32::from(c)),
        _ if rng.happens(150) => format!("\\u{:04X}", u32::from(c)),
        _ => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(character).collect::<String>())
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
