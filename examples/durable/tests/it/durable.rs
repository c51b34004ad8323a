//! `Invoke` of Lambda for a durable function, as AWS documents it:
//! <https://docs.aws.amazon.com/lambda/latest/dg/durable-execution-idempotency.html>

use std::sync::{Arc, Mutex};

use harness::http::{Answer, Request, Server};

/// What happens to each call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Throttled,
    Denied,
    /// The execution is started, and the connection is closed.
    ReplyLost,
    /// The execution is started, and the response is an internal error.
    Internal,
}

#[derive(Default)]
struct State {
    /// Names and payloads, in order of their start.
    executions: Vec<(String, String)>,
    calls: usize,
    fault: Option<Fault>,
}

pub(crate) struct Durable {
    server: Server,
    state: Arc<Mutex<State>>,
}

impl Durable {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let server = Server::start(move |request: Request| {
            let answer = shared.lock().unwrap().invoke(&request);
            async move { answer }
        })
        .await;
        Self { server, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    pub(crate) fn executions(&self) -> Vec<(String, String)> {
        self.state.lock().unwrap().executions.clone()
    }

    pub(crate) fn calls(&self) -> usize {
        self.state.lock().unwrap().calls
    }

    pub(crate) fn fail(&self, fault: Option<Fault>) {
        self.state.lock().unwrap().fault = fault;
    }
}

impl State {
    fn invoke(&mut self, request: &Request) -> Answer {
        let function = super::FUNCTION.replace(':', "%3A");
        let path = format!("/2015-03-31/functions/{function}/invocations");
        assert_eq!((request.method.as_str(), &request.path), ("POST", &path));
        assert_eq!(request.header("X-Amz-Invocation-Type"), Some("Event"));
        self.calls += 1;
        match self.fault {
            Some(Fault::Throttled) => return error(429, "TooManyRequestsException"),
            Some(Fault::Denied) => return error(403, "AccessDeniedException"),
            Some(Fault::ReplyLost | Fault::Internal) | None => {}
        }
        let name = request.header("X-Amz-Durable-Execution-Name").unwrap().to_owned();
        let payload = String::from_utf8(request.body.clone()).unwrap();
        match self.executions.iter().find(|(known, _)| *known == name) {
            Some((_, known)) if *known != payload => return error(409, "DurableExecutionAlreadyStartedException"),
            Some(_) => {}
            None => self.executions.push((name.clone(), payload)),
        }
        match self.fault {
            Some(Fault::ReplyLost) => Answer::Cut(Vec::new()),
            Some(Fault::Internal) => error(500, "ServiceException"),
            Some(Fault::Throttled | Fault::Denied) | None => {
                let arn = format!("{}:1/durable-execution/{name}/1", super::FUNCTION.trim_end_matches(":live"));
                Answer::with(202, &[("X-Amz-Durable-Execution-Arn", &arn)], b"")
            }
        }
    }
}

fn error(status: u16, kind: &str) -> Answer {
    let headers = [("X-Amzn-ErrorType", kind), ("Content-Type", "application/json")];
    Answer::with(status, &headers, br#"{"Message":"scripted"}"#)
}
