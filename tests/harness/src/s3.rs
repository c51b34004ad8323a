//! As much of S3 as the function calls: objects that are put and got by their path.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use super::http::{Answer, Request, Server};

/// An S3 that does as its test says.
pub struct S3 {
    server: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// By `/bucket/name`, escaped as they came.
    objects: BTreeMap<String, Vec<u8>>,
    /// What is answered next, in the place of what is asked for.
    instead: VecDeque<Answer>,
    calls: Vec<String>,
}

impl S3 {
    pub async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let known = Arc::clone(&state);
        let server = Server::start(move |request: Request| {
            let answer = known.lock().unwrap().answer(request);
            async move { answer }
        })
        .await;
        Self { server, state }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    pub fn put(&self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.state().objects.insert(path.to_owned(), bytes.into());
    }

    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.state().objects.clone()
    }

    /// The next call is answered so; called again, the one after it is.
    pub fn next(&self, answer: Answer) {
        self.state().instead.push_back(answer);
    }

    /// The next call is refused by this word.
    pub fn refuse_next(&self, status: u16, word: &str) {
        let body = format!("<?xml version=\"1.0\"?>\n<Error><Code>{word}</Code><Message>no</Message></Error>");
        self.next(Answer::with(status, &[("Content-Type", "application/xml")], body.as_bytes()));
    }

    /// The calls since the last look, as `GET /bucket/name`.
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn answer(&mut self, request: Request) -> Answer {
        let Request { method, path, .. } = &request;
        self.calls.push(format!("{method} {path}"));
        let signed = request.header("Authorization").unwrap_or_default();
        assert!(signed.starts_with("AWS4-HMAC-SHA256 Credential=test/"), "{signed}");
        assert!(signed.contains("/eu-central-1/s3/aws4_request"), "{signed}");
        assert!(request.header("x-amz-content-sha256").is_some_and(|hash| hash.len() == 64));
        if let Some(answer) = self.instead.pop_front() {
            return answer;
        }
        match (method.as_str(), self.objects.get(path)) {
            ("PUT", _) => {
                self.objects.insert(path.clone(), request.body);
                Answer::status(200)
            }
            ("GET", Some(object)) => Answer::with(200, &[("Content-Type", "binary/octet-stream")], object),
            ("GET", None) => Answer::with(404, &[], b"<Error><Code>NoSuchKey</Code></Error>"),
            (other, _) => panic!("{other} is not asked of S3"),
        }
    }
}
