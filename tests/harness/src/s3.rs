//! The API of S3 that the function calls: `PutObject` and `GetObject`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use super::http::{Answer, Request, Server};
use super::sigv4::signer;

/// An S3 server whose responses a test can replace.
pub struct S3 {
    server: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// By `/bucket/name`, percent-encoded as received.
    objects: BTreeMap<String, Vec<u8>>,
    /// Responses to the next requests.
    replaced: VecDeque<Answer>,
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

    /// Sets the response to the next request. Repeated, it sets the response to the request after that.
    pub fn next(&self, answer: Answer) {
        self.state().replaced.push_back(answer);
    }

    /// Rejects the next request with this status and error code.
    pub fn refuse_next(&self, status: u16, word: &str) {
        let body = format!("<?xml version=\"1.0\"?>\n<Error><Code>{word}</Code><Message>no</Message></Error>");
        self.next(Answer::with(status, &[("Content-Type", "application/xml")], body.as_bytes()));
    }

    /// The requests since the last `take_calls`, as `GET /bucket/name`.
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
        let (access_key, scope) = signer(&request, "test").expect("the request is signed");
        assert!(access_key == "test" && scope.ends_with("/eu-central-1/s3/aws4_request"), "{access_key}, {scope}");
        if let Some(answer) = self.replaced.pop_front() {
            return answer;
        }
        match (method.as_str(), self.objects.get(path)) {
            ("PUT", _) => {
                self.objects.insert(path.clone(), request.body);
                Answer::status(200)
            }
            ("GET", Some(object)) => Answer::with(200, &[("Content-Type", "binary/octet-stream")], object),
            ("GET", None) => Answer::with(404, &[], b"<Error><Code>NoSuchKey</Code></Error>"),
            (other, _) => panic!("unexpected method {other}"),
        }
    }
}
