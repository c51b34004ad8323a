//! Lines of the log as fields, for tests that compare them with what happened.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::mem;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Span, Subscriber, subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Scope};
use tracing_subscriber::{Layer, Registry};

/// The fields of a line, those of its spans among them.
#[derive(Clone, Debug, Default)]
pub struct Line(BTreeMap<&'static str, String>);

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Records the lines and spans of this process whose target begins with one of these names.
///
/// # Panics
/// If the process has another log.
pub fn record(targets: &'static [&'static str]) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let recorder = Registry::default().with(Recorder { targets });
        subscriber::set_global_default(recorder).expect("the process has no other log");
    });
}

/// The lines since the last call.
pub fn take() -> Vec<Line> {
    mem::take(&mut *lines())
}

/// The value of this field in the current span, or in one around it.
#[must_use]
pub fn in_current_span(field: &str) -> Option<String> {
    let value = |(id, dispatch): (&Id, &Dispatch)| {
        let span = dispatch.downcast_ref::<Registry>()?.span(id)?;
        span.scope().find_map(|span| span.extensions().get::<Line>()?.get(field).map(str::to_owned))
    };
    Span::current().with_subscriber(value).flatten()
}

impl Line {
    /// The value of this field, if it has one.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    /// The names of its fields.
    pub fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}

fn lines() -> MutexGuard<'static, Vec<Line>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

struct Recorder {
    targets: &'static [&'static str],
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.targets.iter().any(|target| metadata.target().starts_with(target))
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut line = Line::default();
        attributes.record(&mut line);
        span.extensions_mut().insert(line);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(line) = span.extensions_mut().get_mut::<Line>() {
            values.record(line);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Line::default();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(Line(fields)) = span.extensions().get::<Line>() {
                line.0.extend(fields.clone());
            }
        }
        event.record(&mut line);
        lines().push(line);
    }
}
