//! The library `struct` of Redis's Lua, with the formats that the scripts use: `>`, `I8`, `B` and `cN`.

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

/// An item of a format.
enum Item {
    /// An unsigned number of this many bytes.
    Number(usize),
    /// A string of this many bytes.
    Text(usize),
}

pub(super) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library
        .set("pack", lua.create_function(|lua, (format, values): (String, MultiValue)| pack(lua, &format, values))?)?;
    library.set(
        "unpack",
        lua.create_function(|lua, (format, data, from): (String, LuaString, Option<usize>)| {
            unpack(lua, &format, &data, from.unwrap_or(1) - 1)
        })?,
    )?;
    Ok(library)
}

fn items(format: &str) -> Result<Vec<Item>> {
    let unexpected = || Error::runtime(format!("the simulation does not know the format {format}"));
    let mut items = Vec::new();
    let format = format.strip_prefix('>').ok_or_else(unexpected)?;
    let mut rest = format;
    while let Some(kind) = rest.chars().next() {
        let digits = rest[1..].chars().take_while(char::is_ascii_digit).count();
        let size = rest[1..=digits].parse();
        items.push(match (kind, size) {
            ('B', _) if digits == 0 => Item::Number(1),
            ('I', Ok(8)) => Item::Number(8),
            ('c', Ok(size)) if size > 0 => Item::Text(size),
            _ => return Err(unexpected()),
        });
        rest = &rest[1 + digits..];
    }
    Ok(items)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as in C")]
fn pack(lua: &Lua, format: &str, values: MultiValue) -> Result<LuaString> {
    let (mut packed, mut values) = (Vec::new(), values.into_iter());
    for item in items(format)? {
        let value = values.next().unwrap_or(Value::Nil);
        match item {
            Item::Number(size) => {
                let number = lua.coerce_number(value)?.ok_or_else(|| Error::runtime("number expected"))?;
                let number = if number < 0.0 { number as i64 as u64 } else { number as u64 };
                packed.extend(&number.to_be_bytes()[8 - size..]);
            }
            Item::Text(size) => {
                let text = lua.coerce_string(value)?.ok_or_else(|| Error::runtime("string expected"))?;
                let text = text.as_bytes();
                packed.extend(text.get(..size).ok_or_else(|| Error::runtime("string too short"))?);
            }
        }
    }
    lua.create_string(packed)
}

#[expect(clippy::cast_precision_loss, reason = "as in Lua, whose numbers are doubles")]
fn unpack(lua: &Lua, format: &str, data: &LuaString, from: usize) -> Result<MultiValue> {
    let (data, mut at, mut values) = (data.as_bytes(), from, Vec::new());
    for item in items(format)? {
        let (Item::Number(size) | Item::Text(size)) = item;
        let bytes = data.get(at..at + size).ok_or_else(|| Error::runtime("data string too short"))?;
        at += size;
        values.push(match item {
            Item::Number(_) => {
                Value::Number(bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)) as f64)
            }
            Item::Text(_) => Value::String(lua.create_string(bytes)?),
        });
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(MultiValue::from_vec(values))
}
