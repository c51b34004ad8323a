//! The text of a `Number` attribute.

/// Most digits, without leading and trailing zeroes: "A number can have up to 38 digits of precision, and it can be
/// between 10^-128 and 10^+126",
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html#message-attribute-data-types>
const MOST_DIGITS: usize = 38;

/// Powers of ten between which a number is, regardless of its sign.
const LEAST: i64 = -128;
const GREATEST: i64 = 126;

/// The number as SQS keeps it: "Amazon SQS removes leading and trailing zeroes". Trailing zeroes of an integer stay,
/// because they are part of its value. `None` if SQS refuses it. Zero is accepted; the documentation does not mention
/// it.
pub(super) fn number(text: &str) -> Option<String> {
    let sign = &text[..usize::from(text.starts_with(['-', '+']))];
    let rest = &text[sign.len()..];
    let (digits, exponent) = rest.split_at(rest.find(['e', 'E']).unwrap_or(rest.len()));
    if !is_in_range(digits, exponent)? {
        return None;
    }
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    let digits = digits.trim_start_matches('0');
    let zero = if digits.is_empty() || digits.starts_with('.') { "0" } else { "" };
    Some(format!("{sign}{zero}{digits}{exponent}"))
}

/// Whether the number has few enough digits and is between the powers of ten. `None` if it is not a number.
fn is_in_range(digits: &str, exponent: &str) -> Option<bool> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = [whole, fraction].concat();
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let power = exponent.get(1..).filter(|_| !exponent.is_empty());
    let has_power = power.is_none_or(|power| is_number(power.strip_prefix(['-', '+']).unwrap_or(power)));
    if !is_number(&all) || !has_power {
        return None;
    }
    let significant = all.trim_matches('0');
    if significant.is_empty() {
        return Some(true);
    }
    // Of the first significant digit: 0 for units, -1 for tenths.
    let place = i64::try_from(whole.len()).ok()? - 1 - i64::try_from(all.find(significant)?).ok()?;
    // A power that does not fit is out of range.
    let Ok(power) = power.unwrap_or("0").parse::<i64>() else { return Some(false) };
    let place = place.saturating_add(power);
    let is_between = (LEAST..GREATEST).contains(&place) || place == GREATEST && significant == "1";
    Some(is_between && significant.len() <= MOST_DIGITS)
}
