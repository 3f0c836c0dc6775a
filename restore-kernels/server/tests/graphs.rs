//! Graphs of launches that can stop, with a device that is a few lines long.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "other tests use it")]
mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use hetckpt_ring::command::StreamId;
use hetckpt_state::names::description_file;
use hetckpt_state::summary::Description;
use support::{App, Server, start, start_quick};

const DEFAULT: StreamId = StreamId::LEGACY_DEFAULT;
/// Launches in the graph.
const LAUNCHES: u32 = 5;
/// Blocks of each.
const BLOCKS: usize = 3;

/// Launches of a graph all of which add to the same words.
struct Graph<'a> {
    app: &'a App,
    out: u64,
    times: u32,
    num_launched: u32,
}

impl Graph<'_> {
    fn launch(&mut self) {
        let outs = [self.out; LAUNCHES as usize];
        let blocks = u32::try_from(BLOCKS).unwrap();
        self.app.count_in_graph(DEFAULT, &outs, blocks, self.times);
        self.num_launched += 1;
    }

    fn is_done(&self) {
        let wanted = self.num_launched * LAUNCHES * self.times;
        assert_eq!(self.app.words(DEFAULT, self.out, BLOCKS), [wanted; BLOCKS]);
    }
}

/// A graph that the device does as one from now on.
fn made<'a>(app: &'a App, server: &Server, times: u32) -> Graph<'a> {
    app.load();
    let mut graph = Graph {
        app,
        out: app.malloc(4096),
        times,
        num_launched: 0,
    };
    while server.device.graphs.load(Ordering::SeqCst) == 0 {
        graph.launch();
        graph.is_done();
        std::thread::sleep(Duration::from_millis(1));
    }
    graph
}

fn additions(server: &Server) -> u64 {
    server.device.additions.load(Ordering::SeqCst)
}

#[test]
fn many_pauses_of_graphs_lose_nothing() {
    for (app, server) in [start(), start_quick()] {
        many_pauses(&app, &server);
    }
}

fn many_pauses(app: &App, server: &Server) {
    let mut graph = made(app, server, 4);
    for _ in 0..10 {
        graph.launch();
        // Behind it a graph stops.
        app.count(DEFAULT, graph.out + 1024, 1, 2);
        graph.launch();
    }
    for i in 0..60 {
        std::thread::sleep(Duration::from_micros(i * 37 % 2900));
        server.pause();
        server.release();
    }
    graph.is_done();
    assert_eq!(app.words(DEFAULT, graph.out + 1024, 1), [20]);
}

#[test]
fn a_pause_waits_for_what_ends_soon_and_runs_none_behind_it() {
    let (app, server) = start_quick();
    let mut graph = made(&app, &server, 10);
    let before = additions(&server);
    for _ in 0..4 {
        graph.launch();
    }
    server.wait_additions(before + 12);
    server.pause();
    let dir = tempfile::tempdir().unwrap();
    server.capture(dir.path());
    let json = std::fs::read(dir.path().join(description_file(4242))).unwrap();
    let description: Description = serde_json::from_slice(&json).unwrap();
    assert!(description.summary.kernels_in_flight.is_empty(), "{description:?}");
    let one = u64::from(LAUNCHES * 10) * BLOCKS as u64;
    let here = additions(&server) - before;
    assert!(here.is_multiple_of(one) && here < 4 * one, "{here} of {one} each");
    let restored = Server::restore(dir.path(), &app);
    graph.is_done();
    assert_eq!(here + additions(&restored), 4 * one);
}

#[test]
fn another_server_goes_on_amid_a_graph() {
    let (app, server) = start();
    let mut graph = made(&app, &server, 30);
    let before = additions(&server);
    graph.launch();
    graph.launch();
    let waiting = app.begin_synchronize();
    // In the second launch of the first, which is the second block's turn.
    server.wait_additions(before + 30 * 3 + 35);
    server.pause();
    let dir = tempfile::tempdir().unwrap();
    server.capture(dir.path());
    let json = std::fs::read(dir.path().join(description_file(4242))).unwrap();
    let description: Description = serde_json::from_slice(&json).unwrap();
    let kernels = &description.summary.kernels_in_flight;
    assert_eq!(kernels.len(), 1, "{kernels:?}");
    assert_eq!((kernels[0].name.as_str(), kernels[0].blocks_paused), ("count", 1));
    let restored = Server::restore(dir.path(), &app);
    assert_eq!(waiting.wait().unwrap().result, 0);
    graph.is_done();
    let all = u64::from(graph.num_launched * LAUNCHES * graph.times) * BLOCKS as u64;
    assert_eq!(additions(&server) + additions(&restored), all);
    // There it is made anew.
    for _ in 0..4 {
        graph.launch();
        graph.is_done();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(restored.device.graphs.load(Ordering::SeqCst) > 0);
}
