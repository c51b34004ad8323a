//! JSON values that differ in little, in the many spellings that are equal.

use std::iter::repeat_n;

use history::Rng;

/// The values after the number of a payment.
const LAST: [&str; 6] = ["true", "false", "null", "[]", "{}", "[null]"];

/// The name of that value.
const LAST_NAME: &str = "then";

/// Powers of ten by which numbers are multiplied. These have their decimal point before, between and after their
/// digits, near to them or far away.
const EXPONENTS: [i64; 7] = [0, 15, 40, 400, -10, -30, -400];

/// Digits of a number, without those of the payment: more than a binary floating-point number has.
const ZEROS: &str = "0000000000000000000000";

/// A text whose characters have several spellings.
const TEXT: &str = "Ö😀/€\u{8}\u{c}\n\r\t\u{1}\"\\ plain";

/// Spellings of zero.
const OF_ZERO: [&str; 5] = ["0", "-0", "0e5", "0.000", "-0.0E-7"];

/// What is not JSON.
const BROKEN: [&str; 20] = [
    "01",
    "-",
    "+1",
    "1.",
    ".5",
    "1e",
    "1e+",
    "0x1",
    "NaN",
    "tru",
    "[1,]",
    "[1 2]",
    "{1:2}",
    "{\"a\"}",
    "{\"a\":1,}",
    "'a'",
    "\"\t\"",
    "\"\\x\"",
    "\"\\u12g4\"",
    "\"a",
];

/// The fields of a payment whose number is in its values. Payments of neighbouring numbers differ in the sign of a long
/// number, in one of its last digits, or in the value after it.
pub(super) fn payment(rng: &mut Rng, number: u64) -> String {
    let (is_negative, last, digits) = (number % 2 == 1, number / 2 % LAST.len() as u64, number / 2 / LAST.len() as u64);
    let exponent = EXPONENTS[index(digits) % EXPONENTS.len()];
    let sign = if is_negative { "-" } else { "" };
    let number = decimal(rng, &format!("1{ZEROS}{digits:03}1"), exponent);
    format!("\"payment\":{sign}{number},\"{LAST_NAME}\":{}", LAST[index(last)])
}

/// The number of the payment whose fields begin here. `None` if they are not of [`payment`].
pub(super) fn read_payment(fields: &str) -> Option<u64> {
    let (number, rest) = fields.split_once(',')?;
    let sign = u64::from(number.contains('-') && number.find('-') < number.find(|c: char| c.is_ascii_digit()));
    let significand = number.split(['e', 'E']).next()?;
    let digits = significand.chars().filter(char::is_ascii_digit).collect::<String>();
    let digits = digits.trim_matches('0').strip_prefix('1')?.strip_prefix(ZEROS)?.strip_suffix('1')?;
    let last = rest.split_once(LAST_NAME)?.1.trim_start_matches(['\\', '"', ':']);
    let last = LAST.iter().position(|value| last.starts_with(value))?;
    Some((digits.parse::<u64>().ok()? * LAST.len() as u64 + last as u64) * 2 + sign)
}

/// Further fields, which all payloads have.
pub(super) fn others([mut text, mut zero, mut numbers]: [Rng; 3]) -> String {
    let zero = zero.pick(&OF_ZERO);
    let text: String = TEXT.chars().map(|character| spell(&mut text, character)).collect();
    let [thousand, quarter] = [("1", 3), ("25", -2)].map(|(digits, exponent)| decimal(&mut numbers, digits, exponent));
    format!(",\"text\":\"{text}\",\"numbers\":[{zero},{thousand},{quarter}]")
}

/// A key that is a number, in one of its spellings.
pub(super) fn key(rng: &mut Rng, key: &str) -> String {
    let (sign, number) = key.strip_prefix('-').map_or(("", key), |number| ("-", number));
    let (number, exponent) = number.split_once('e').unwrap_or((number, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_matches('0');
    if significant.is_empty() {
        return (*rng.pick(&OF_ZERO)).to_owned();
    }
    let zeros = digits.len() - digits.trim_end_matches('0').len();
    let exponent: i64 = exponent.parse().expect("it is an exponent");
    let exponent = exponent.saturating_add_unsigned(zeros as u64).saturating_sub_unsigned(fraction.len() as u64);
    format!("{sign}{}", decimal(rng, significant, exponent))
}

/// A field that makes an object no JSON.
pub(super) fn broken(number: u64) -> String {
    // Deeper than RFC 8259 requires a parser to read, and than the function reads.
    let deep = "[".repeat(129) + &"]".repeat(129);
    let value = BROKEN.get(index(number) % (BROKEN.len() + 1)).map_or(&*deep, |value| value);
    format!("\"broken\":{value}")
}

/// These digits, without zeros at the start and the end, times this power of ten.
fn decimal(rng: &mut Rng, digits: &str, exponent: i64) -> String {
    // The decimal point may be in front of the digits, among them, or behind them.
    let (point, length) = (rng.draw(0..digits.len() as u64 + 8), digits.len() as u64);
    let padded: String = repeat_n('0', 4).chain(digits.chars()).chain(repeat_n('0', 4)).collect();
    let (whole, fraction) = padded.split_at(index(point) + 1);
    let exponent = exponent.saturating_add_unsigned(length + 3).saturating_sub_unsigned(point);
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    // Zeros at the end change nothing.
    let least = fraction.trim_end_matches('0').len();
    let fraction = &fraction[..least + index(rng.draw(0..(fraction.len() - least) as u64 + 1))];
    let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
    let e = rng.pick(&["e", "E"]);
    match exponent {
        0 if rng.happens(500) => format!("{whole}{fraction}"),
        1.. => format!("{whole}{fraction}{e}{}{exponent}", rng.pick(&["", "+", "0", "+00"])),
        _ => format!("{whole}{fraction}{e}-{}{}", rng.pick(&["", "0"]), exponent.abs()),
    }
}

/// A character of a text, as itself or as an escape.
fn spell(rng: &mut Rng, character: char) -> String {
    let escape = match character {
        '\u{8}' => Some('b'),
        '\u{c}' => Some('f'),
        '\n' => Some('n'),
        '\r' => Some('r'),
        '\t' => Some('t'),
        '"' | '\\' | '/' => Some(character),
        _ => None,
    };
    let is_plain = character >= ' ' && character != '"' && character != '\\';
    match (rng.draw(0..3), escape) {
        (0, _) if is_plain => character.to_string(),
        (0 | 1, Some(escape)) => format!("\\{escape}"),
        (choice, _) => {
            let unit = |unit: &u16| if choice == 2 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") };
            character.encode_utf16(&mut [0; 2]).iter().map(unit).collect()
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or_default()
}
