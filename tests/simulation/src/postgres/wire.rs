//! The messages of protocol 3: <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use super::error::{Result, SqlError};
use super::sql::plan::Column;
use super::time::{INFINITY, MINUS_INFINITY};
use super::value::{Type, Value};

/// µs from 1970 to 2000, where the times of the protocol begin.
const EPOCH_US: i64 = 946_684_800_000_000;

/// Messages to send.
#[derive(Default)]
pub(super) struct Replies(pub(super) Vec<u8>);

impl Replies {
    pub(super) fn message(&mut self, kind: u8, body: &[u8]) {
        self.0.push(kind);
        self.0.extend(u32::try_from(body.len() + 4).unwrap_or(u32::MAX).to_be_bytes());
        self.0.extend(body);
    }

    pub(super) fn authentication(&mut self, kind: u32) {
        self.message(b'R', &kind.to_be_bytes());
    }

    pub(super) fn parameter(&mut self, name: &str, value: &str) {
        self.message(b'S', format!("{name}\0{value}\0").as_bytes());
    }

    pub(super) fn ready(&mut self, state: u8) {
        self.message(b'Z', &[state]);
    }

    pub(super) fn complete(&mut self, tag: &str) {
        self.message(b'C', format!("{tag}\0").as_bytes());
    }

    pub(super) fn error(&mut self, error: &SqlError) {
        let severity = if error.is_fatal { "FATAL" } else { "ERROR" };
        let mut fields = vec![(b'S', severity), (b'V', severity), (b'C', error.code), (b'M', &error.message)];
        fields.extend(error.context.as_deref().map(|context| (b'W', context)));
        // Errors about the text of a statement have a position in it.
        fields.extend(error.code.starts_with("42").then_some((b'P', "1")));
        fields.extend(error.table.map(|table| (b't', table)));
        fields.extend(error.constraint.map(|constraint| (b'n', constraint)));
        fields.push((b'R', error.routine));
        self.fields(b'E', &fields);
    }

    pub(super) fn warning(&mut self, code: &str, message: &str) {
        self.fields(b'N', &[(b'S', "WARNING"), (b'V', "WARNING"), (b'C', code), (b'M', message)]);
    }

    fn fields(&mut self, kind: u8, fields: &[(u8, &str)]) {
        let mut body = Vec::new();
        for (field, text) in fields {
            body.push(*field);
            body.extend(text.bytes().chain([0]));
        }
        body.push(0);
        self.message(kind, &body);
    }

    pub(super) fn parameters(&mut self, types: &[Type]) {
        let mut body = count(types.len()).to_vec();
        body.extend(types.iter().flat_map(|ty| ty.oid().to_be_bytes()));
        self.message(b't', &body);
    }

    pub(super) fn columns(&mut self, columns: &[Column], formats: &[i16]) {
        let mut body = count(columns.len()).to_vec();
        for (index, Column { name, ty }) in columns.iter().enumerate() {
            body.extend(name.bytes().chain([0]));
            // Neither a table nor a column of it.
            body.extend([0; 6]);
            body.extend(ty.oid().to_be_bytes());
            body.extend((-1_i16).to_be_bytes());
            body.extend((-1_i32).to_be_bytes());
            body.extend(format_of(formats, index).to_be_bytes());
        }
        self.message(b'T', &body);
    }

    pub(super) fn row(&mut self, row: &[Value], columns: &[Column], formats: &[i16]) -> Result<()> {
        let mut body = count(row.len()).to_vec();
        for (index, (value, Column { ty, .. })) in row.iter().zip(columns).enumerate() {
            if value.is_null() {
                body.extend((-1_i32).to_be_bytes());
                continue;
            }
            let bytes =
                if format_of(formats, index) == 0 { value.to_text().into_bytes() } else { to_binary(value, *ty)? };
            body.extend(i32::try_from(bytes.len()).unwrap_or(i32::MAX).to_be_bytes());
            body.extend(bytes);
        }
        self.message(b'D', &body);
        Ok(())
    }
}

fn count(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}

/// One format is that of all values, and none means text.
fn format_of(formats: &[i16], index: usize) -> i16 {
    match formats {
        [] => 0,
        [format] => *format,
        formats => formats.get(index).copied().unwrap_or(0),
    }
}

fn to_binary(value: &Value, ty: Type) -> Result<Vec<u8>> {
    let narrow = || SqlError::new("22003", format!("{} out of range", ty.name()));
    Ok(match (value, ty) {
        (Value::Bool(value), _) => vec![u8::from(*value)],
        (Value::Int(number), Type::Int2) => i16::try_from(*number).map_err(|_| narrow())?.to_be_bytes().to_vec(),
        (Value::Int(number), Type::Int4) => i32::try_from(*number).map_err(|_| narrow())?.to_be_bytes().to_vec(),
        (Value::Int(number), Type::Oid | Type::Xid) => {
            u32::try_from(*number).map_err(|_| narrow())?.to_be_bytes().to_vec()
        }
        (Value::Int(number), Type::Int8 | Type::Xid8) => number.to_be_bytes().to_vec(),
        (Value::Float(number), Type::Float8) => number.to_be_bytes().to_vec(),
        (Value::Text(text), _) => text.clone().into_bytes(),
        (Value::Bytea(bytes), _) => bytes.clone(),
        (Value::Time(INFINITY), _) => i64::MAX.to_be_bytes().to_vec(),
        (Value::Time(MINUS_INFINITY), _) => i64::MIN.to_be_bytes().to_vec(),
        (Value::Time(us), _) => (us - EPOCH_US).to_be_bytes().to_vec(),
        (Value::Void, _) => Vec::new(),
        (value, ty) => return Err(SqlError::unsupported(("binary", value, ty))),
    })
}

/// The value of a parameter of this type.
pub(super) fn parse_parameter(bytes: &[u8], ty: Type, format: i16) -> Result<Value> {
    let wrong = || SqlError::new("22P03", format!("incorrect binary data format for type {}", ty.name()));
    let text = || {
        let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        text.ok_or_else(|| {
            SqlError::new("22021", "invalid byte sequence for encoding \"UTF8\"").by("report_invalid_encoding")
        })
    };
    if format == 0 {
        return Value::parse(text()?, ty);
    }
    let int8 = || bytes.try_into().map(i64::from_be_bytes).map_err(|_| wrong());
    let int4 = || bytes.try_into().map(i32::from_be_bytes).map_err(|_| wrong());
    Ok(match ty {
        Type::Bool => Value::Bool(*bytes.first().ok_or_else(wrong)? != 0),
        Type::Int2 => Value::Int(bytes.try_into().map(i16::from_be_bytes).map_err(|_| wrong())?.into()),
        Type::Int4 => Value::Int(int4()?.into()),
        Type::Oid | Type::Xid => Value::Int(i64::from(int4()?.cast_unsigned())),
        Type::Int8 | Type::Xid8 => Value::Int(int8()?),
        Type::Float8 => Value::Float(f64::from_bits(int8()?.cast_unsigned())),
        Type::Text | Type::Name | Type::Unknown => Value::text(text()?),
        Type::Bytea => Value::Bytea(bytes.to_vec()),
        Type::Timestamptz => Value::Time(match int8()? {
            i64::MAX => INFINITY,
            i64::MIN => MINUS_INFINITY,
            us => us.checked_add(EPOCH_US).ok_or_else(|| SqlError::new("22008", "timestamp out of range"))?,
        }),
        ty => return Err(SqlError::unsupported(("binary", ty))),
    })
}

/// Reads the body of a message.
pub(super) struct Body<'a>(pub(super) &'a [u8]);

impl<'a> Body<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        if count > self.0.len() {
            return Err(SqlError::fatal("08P01", "insufficient data left in message"));
        }
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }

    pub(super) fn int2(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.bytes(2)?.try_into().unwrap_or_default()))
    }

    pub(super) fn int4(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.bytes(4)?.try_into().unwrap_or_default()))
    }

    pub(super) fn text(&mut self) -> Result<String> {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let text = String::from_utf8_lossy(self.bytes(end)?).into_owned();
        self.bytes(1)?;
        Ok(text)
    }

    /// The formats of parameters or columns.
    pub(super) fn formats(&mut self) -> Result<Vec<i16>> {
        (0..self.int2()?).map(|_| self.int2()).collect()
    }

    /// The parameters of these types.
    pub(super) fn values(&mut self, types: &[Type]) -> Result<Vec<Value>> {
        let formats = self.formats()?;
        let count = usize::try_from(self.int2()?).unwrap_or(0);
        if count != types.len() {
            let message =
                format!("bind message supplies {count} parameters, but prepared statement requires {}", types.len());
            return Err(SqlError::new("08P01", message));
        }
        let value = |(index, ty): (usize, &Type)| match usize::try_from(self.int4()?) {
            Ok(length) => {
                let value = parse_parameter(self.bytes(length)?, *ty, format_of(&formats, index));
                let context = Some(format!("unnamed portal parameter ${}", index + 1));
                value.map_err(|error| SqlError { context, ..error })
            }
            Err(_) => Ok(Value::Null),
        };
        types.iter().enumerate().map(value).collect()
    }
}
