//! What the layers log of their requests.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::mem;
use std::sync::{Mutex, Once};

use harness::torture::tally::lock;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Span, Subscriber, info_span, subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// The fields of a line, of its span and of its event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(BTreeMap<&'static str, String>);

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Records the lines of all layers of this process.
pub(crate) fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| subscriber::set_global_default(Registry::default().with(Recorder)).unwrap());
}

/// The lines since the last call.
pub(crate) fn take() -> Vec<Line> {
    mem::take(&mut *lock(&LINES))
}

impl Line {
    /// The value of this field, if it has one.
    pub(crate) fn get(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// A span for the request of this number, for [`request`].
pub(crate) fn span(number: usize) -> Span {
    info_span!("request", number)
}

/// The number of the request that this task answers.
pub(crate) fn request() -> Option<usize> {
    let number = |(id, dispatch): (&Id, &Dispatch)| {
        let span = dispatch.downcast_ref::<Registry>()?.span(id)?;
        span.scope().find_map(|span| span.extensions().get::<Line>()?.get("number")?.parse().ok())
    };
    Span::current().with_subscriber(number).flatten()
}

struct Recorder;

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        [module_path!(), "idempotent_sqs_http::report"].contains(&metadata.target())
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut line = Line::default();
        attributes.record(&mut line);
        context.span(id).unwrap().extensions_mut().insert(line);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        values.record(context.span(id).unwrap().extensions_mut().get_mut::<Line>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = context.event_span(event).unwrap().extensions().get::<Line>().unwrap().clone();
        event.record(&mut line);
        // Other lines say that the function that gets reports panicked.
        if line.get("message") == Some("request answered") {
            lock(&LINES).push(line);
        }
    }
}
