//! Batches on a cluster of three masters compared with one server.

use benches::Fallible;
use benches::figures::{median, ms, short};
use benches::server::Server;
use benches::table::Table;

use crate::cluster::Cluster;
use crate::function::Function;
use crate::interleave::measure_new;
use crate::options::Options;
use crate::process::Process;
use crate::report::Report;

pub(crate) fn run(options: &Options, _functions: &[Function], report: &mut Report) -> Fallible<()> {
    let mut cluster = Cluster::start()?;
    let mut server = Server::start(&[])?;
    let function = Function::noop()?;
    let mut table = Table::new(&["batch", "cluster, p50 ms", "one server, p50 ms", "one server = 1"]);
    for &batch in &options.sizes {
        match compare(&function, &mut cluster, &mut server, batch, options) {
            Ok(row) => table.row(row),
            Err(error) => report.failure(&format!("`noop` on a cluster, batch of {batch}"), &*error),
        }
    }
    report.table("`noop`, new messages, on a cluster of three masters", table);
    Ok(())
}

fn compare(
    function: &Function,
    cluster: &mut Cluster,
    server: &mut Server,
    batch: usize,
    options: &Options,
) -> Fallible<[String; 4]> {
    let measure = |url: &str, is_cluster: &str| -> Fallible<(f64, usize)> {
        let concurrency = batch.to_string();
        let settings = [("REDIS_URL", url), ("REDIS_CLUSTER", is_cluster), ("BATCH_CONCURRENCY", &concurrency)];
        let mut process = Process::start(function, &settings)?;
        let (done, messages) = measure_new(&mut process, batch, options.body, options.seconds)?;
        Ok((median(done.times.iter().copied().map(ms)), messages))
    };
    let (mut clustered, mut single) = (Vec::new(), Vec::new());
    for index in 0..options.rounds {
        eprintln!("cluster, batches of {batch}, round {} of {}", index + 1, options.rounds);
        cluster.flush()?;
        server.flush()?;
        let (time, messages) = measure(&cluster.url(), "true")?;
        clustered.push(time);
        let records = cluster.records()?;
        if records < messages {
            return Err(format!("{records} records in the cluster for {messages} messages").into());
        }
        single.push(measure(&server.url(), "false")?.0);
    }
    let ratio = median(clustered.iter().zip(&single).map(|(clustered, single)| clustered / single));
    Ok([batch.to_string(), short(median(clustered)), short(median(single)), short(ratio)])
}
