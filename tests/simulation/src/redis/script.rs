//! Executes scripts: <https://redis.io/docs/latest/develop/programmability/lua-api/>.

use std::collections::HashMap;
use std::sync::OnceLock;

use history::guards::{Guard, without};
use mlua::{Function, Lua, MultiValue, Result, Table, Value};

use super::resp::{Command, Reply};
use super::structs;
use crate::servers::Version;

/// `redis.call` raises errors, `redis.pcall` returns them. Redis 7 raises tables, and Redis 6 their texts.
const LIBRARY: &str = "
local execute = ...
redis = { pcall = execute }
function redis.call(...)
  local reply = execute(...)
  if type(reply) == 'table' and reply.err then error(redis.REDIS_VERSION_NUM and reply or reply.err, 0) end
  return reply
end
function redis.error_reply(text) return { err = text } end
function redis.status_reply(text) return { ok = text } end
local pcall = pcall
return function(script) return pcall(script) end";

/// The guard that is removed from all scripts of this process. A run should find that it is missing.
static REMOVED: OnceLock<&Guard> = OnceLock::new();

/// From now on, servers execute the scripts without this guard. Further calls have no effect.
pub fn remove(guard: &'static Guard) {
    let _first = REMOVED.set(guard);
}

/// A compiled script.
#[derive(Clone)]
pub(super) struct Script {
    function: Function,
    hash: String,
    /// The flags in its first line, `#!lua flags=…`. `None` without such a line.
    pub(super) flags: Option<Vec<String>>,
}

/// The scripts of a server.
pub(super) struct Scripts {
    lua: Lua,
    protected: Function,
    loaded: HashMap<String, Script>,
    version: Version,
}

impl Scripts {
    /// `execute` executes the commands of scripts.
    pub(super) fn new(execute: impl Fn(Command) -> Reply + Send + 'static) -> Result<Self> {
        let lua = Lua::new();
        let execute = lua.create_function(move |lua, arguments: MultiValue| {
            let command: Option<Command> = arguments.iter().map(argument).collect();
            let why = "ERR Lua redis lib command arguments must be strings or integers";
            to_lua(lua, command.map_or_else(|| Reply::error(why), &execute))
        })?;
        lua.globals().set("struct", structs::library(&lua)?)?;
        let protected = lua.load(LIBRARY).call(execute)?;
        let mut scripts = Self { lua, protected, loaded: HashMap::new(), version: Version::default() };
        scripts.set_version(Version::default());
        Ok(scripts)
    }

    /// Sets the version of the server, which has started without scripts.
    pub(super) fn set_version(&mut self, version: Version) {
        self.version = version;
        let library: Result<Table> = self.lua.globals().get("redis");
        let set = library.and_then(|library| library.set("REDIS_VERSION_NUM", version.number()));
        set.expect("the library is a table");
        self.flush();
    }

    pub(super) fn get(&self, hash: &str) -> Option<Script> {
        self.loaded.get(hash).cloned()
    }

    pub(super) fn flush(&mut self) {
        self.loaded.clear();
    }

    /// Compiles and keeps the script.
    pub(super) fn load(&mut self, text: &str) -> std::result::Result<Script, Reply> {
        let hash = redis::Script::new(text).get_hash().to_owned();
        if let Some(script) = self.get(&hash) {
            return Ok(script);
        }
        let text = REMOVED.get().map_or_else(|| text.to_owned(), |guard| without(guard, text));
        let (flags, code) = match text.strip_prefix("#!") {
            Some(rest) => {
                let (line, code) = rest.split_once('\n').unwrap_or((rest, ""));
                let flags = line.strip_prefix("lua flags=").unwrap_or_default();
                (Some(flags.split(',').map(str::to_owned).collect::<Vec<_>>()), format!("\n{code}"))
            }
            None => (None, text),
        };
        if let Some(rejected) = flags.as_deref().and_then(|flags| self.version.rejects_flags(flags)) {
            return Err(rejected);
        }
        let function = self.lua.load(code).set_name("@user_script").into_function();
        let function = function.map_err(|error| {
            Reply::error(format!("ERR Error compiling script (new function): {}", one_line(&error.to_string())))
        })?;
        let script = Script { function, hash: hash.clone(), flags };
        self.loaded.insert(hash, script.clone());
        Ok(script)
    }

    /// Executes the script with these keys and arguments.
    pub(super) fn run(&self, script: &Script, keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Reply {
        self.try_run(script, keys, arguments).unwrap_or_else(|error| Reply::error(format!("ERR {error}")))
    }

    fn try_run(&self, script: &Script, keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Result<Reply> {
        for (name, values) in [("KEYS", keys), ("ARGV", arguments)] {
            let values: Result<Vec<_>> = values.iter().map(|value| self.lua.create_string(value)).collect();
            self.lua.globals().set(name, self.lua.create_sequence_from(values?)?)?;
        }
        let (is_done, value): (bool, Value) = self.protected.call(&script.function)?;
        if is_done {
            return from_lua(value);
        }
        // An error of Redis is a table, or in Redis 6 its text. Any other error is a text.
        let text = match &value {
            Value::Table(error) => error.get::<String>("err")?,
            other if self.version.number().is_some() => format!("ERR {}", other.to_string()?),
            other => other.to_string()?,
        };
        Ok(self.version.raised(&script.hash, &one_line(&text)))
    }
}

fn argument(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// <https://redis.io/docs/latest/develop/programmability/lua-api/#resp-to-lua-type-conversion>
fn to_lua(lua: &Lua, reply: Reply) -> Result<Value> {
    let named = |name: &str, text: String| -> Result<Value> {
        let table = lua.create_table()?;
        table.set(name, text)?;
        Ok(Value::Table(table))
    };
    Ok(match reply {
        Reply::Status(text) => named("ok", text)?,
        Reply::Error(text) => named("err", text)?,
        #[expect(clippy::cast_precision_loss, reason = "as in Lua, whose numbers are doubles")]
        Reply::Integer(number) => Value::Number(number as f64),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Nil => Value::Boolean(false),
        Reply::Array(items) => {
            let items: Result<Vec<_>> = items.into_iter().map(|item| to_lua(lua, item)).collect();
            Value::Table(lua.create_sequence_from(items?)?)
        }
    })
}

/// <https://redis.io/docs/latest/develop/programmability/lua-api/#lua-to-resp2-type-conversion>
fn from_lua(value: Value) -> Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::bulk(&*text.as_bytes()),
        Value::Integer(number) => Reply::Integer(number),
        #[expect(clippy::cast_possible_truncation, reason = "as in Redis")]
        Value::Number(number) => Reply::Integer(number as i64),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(table) => from_table(&table)?,
        _ => Reply::Nil,
    })
}

fn from_table(table: &Table) -> Result<Reply> {
    if let Some(text) = table.get::<Option<String>>("err")? {
        return Ok(Reply::error(text));
    }
    if let Some(text) = table.get::<Option<String>>("ok")? {
        return Ok(Reply::Status(text));
    }
    let items: Result<Vec<_>> = table.sequence_values::<Value>().map(|item| from_lua(item?)).collect();
    Ok(Reply::Array(items?))
}
