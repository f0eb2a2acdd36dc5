//! One server that holds state: how it is reached, how it is, and the lanes to it.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep, timeout};

use super::connection::{Connection, Dialogue, Door};
use super::health::{Health, Turns};
use super::job::Job;
use super::lane::Lane;
use crate::store::redis::ServerStatus;
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::batch::{Call, Terms};
use crate::store::redis::protocol::reply::Reply;
use crate::store::redis::protocol::script::Scripts;
use crate::store::redis::topology::cluster::Cluster;
use crate::store::redis::topology::target::Address;
use crate::store::redis::topology::whereabouts::{Places, Whereabouts};

/// What all connections of one store have in common.
pub(crate) struct Link {
    pub(crate) door: Door,
    pub(crate) terms: Terms,
    pub(crate) scripts: Scripts,
    /// How long a check may take: whoever answers later does not answer.
    pub(crate) deadline: Duration,
    /// How many connections lead to each server.
    pub(crate) lanes: usize,
    pub(crate) runtime: Handle,
    /// Draws pauses, from 0 up to 1.
    pub(crate) dice: fn() -> f64,
}

impl Link {
    /// A connection that owes an answer for so long is given up.
    pub(crate) fn stall(&self) -> Duration {
        STALL_MIN.max(self.deadline)
    }

    /// What is waited for the answer to a probe although the deadline is shorter: the first answer of a connection is its
    /// slowest.
    fn probe(&self) -> Duration {
        PROBE_MIN.max(self.deadline)
    }
}

pub(crate) const STALL_MIN: Duration = Duration::from_millis(200);
/// How long a connection may take to be made.
pub(crate) const DIAL_MAX: Duration = Duration::from_secs(2);
const PROBE_MIN: Duration = Duration::from_millis(25);
/// The first pause after a failed connection is drawn from up to this, each next one from up to twice as much.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A replica that was chosen is about to be a primary.
const PAUSE_MAX_REPLICA: Duration = Duration::from_millis(80);

/// A server and the lanes to it. When it is dropped the lanes finish what they have, and end.
pub(crate) struct Node {
    pub(crate) state: Arc<NodeState>,
    lanes: Arc<[Entrance]>,
}

/// One end of a lane.
struct Entrance {
    jobs: mpsc::UnboundedSender<Job>,
    is_connected: Arc<AtomicBool>,
}

/// What the lanes to one server share.
pub(crate) struct NodeState {
    pub(crate) link: Arc<Link>,
    pub(crate) whereabouts: Whereabouts,
    pub(crate) health: Arc<Health>,
    /// Where to send what this server sends elsewhere.
    pub(crate) cluster: Weak<Cluster>,
    /// Where the lanes begin, for as long as anybody can send something there.
    lanes: OnceLock<Weak<[Entrance]>>,
    /// How many lanes are connected: as long as one is, the server is up.
    connected: AtomicUsize,
    /// Held while a connection is made: one at a time.
    pace: Mutex<Pace>,
}

/// When the next connection may be tried.
#[derive(Debug)]
struct Pace {
    /// Nothing is known against other places.
    tried: Places,
    pause: Duration,
    barred: Option<(Instant, RedisError)>,
}

impl Pace {
    fn new(tried: Places) -> Pace {
        Pace { tried, pause: PAUSE_FIRST, barred: None }
    }
}

/// No connection, and none to be tried before this.
#[derive(Debug)]
pub(crate) struct NotYet {
    pub(crate) tried: Places,
    pub(crate) until: Instant,
    pub(crate) error: RedisError,
}

impl Node {
    /// Starts the lanes.
    pub(crate) fn new(
        link: &Arc<Link>,
        whereabouts: Whereabouts,
        health: Arc<Health>,
        cluster: Weak<Cluster>,
    ) -> Node {
        let state = Arc::new(NodeState {
            link: Arc::clone(link),
            whereabouts,
            health,
            cluster,
            lanes: OnceLock::new(),
            connected: AtomicUsize::new(0),
            pace: Mutex::new(Pace::new(Places::new())),
        });
        let start = |_| {
            // As many jobs as there are permits: they bound it.
            let (sender, jobs) = mpsc::unbounded_channel();
            let is_connected = Arc::<AtomicBool>::default();
            link.runtime.spawn(Lane::new(Arc::clone(&state), jobs, Arc::clone(&is_connected)).run());
            Entrance { jobs: sender, is_connected }
        };
        let lanes: Arc<[Entrance]> = (0..link.lanes).map(start).collect();
        state.lanes.get_or_init(|| Arc::downgrade(&lanes));
        Node { state, lanes }
    }

    /// How it is doing.
    pub(crate) fn status(&self) -> ServerStatus {
        let NodeState { whereabouts, health, .. } = &*self.state;
        let Turns { opened, closed } = health.turns();
        let address = whereabouts.places().last().map(Address::to_string);
        ServerStatus { address, down: health.why_down(), opened, closed }
    }

    /// Sends a job there, or tells whoever waits why not.
    pub(crate) fn send(&self, job: Job) {
        if let Some(why) = self.state.health.why_down() {
            return job.answer(Err(why));
        }
        // The lane of this thread, or one that is connected if that is not.
        let own = ordinal() % self.lanes.len();
        connected(&self.lanes, own).unwrap_or(&self.lanes[own]).send(job);
    }
}

impl Entrance {
    fn send(&self, job: Job) {
        if let Err(mpsc::error::SendError(job)) = self.jobs.send(job) {
            // The lane ends when the runtime does.
            job.answer(Err(RedisError::Closed));
        }
    }
}

/// The first lane that is connected, from this one on.
fn connected(lanes: &[Entrance], first: usize) -> Option<&Entrance> {
    let (before, after) = lanes.split_at(first);
    after.iter().chain(before).find(|lane| lane.is_connected.load(Ordering::Relaxed))
}

/// The number of this thread among those that ever asked: each has a lane of its own, as far as there are any.
fn ordinal() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static ORDINAL: Cell<Option<usize>> = const { Cell::new(None) };
    }
    ORDINAL.with(|own| {
        own.get().unwrap_or_else(|| {
            let ordinal = NEXT.fetch_add(1, Ordering::Relaxed);
            own.set(Some(ordinal));
            ordinal
        })
    })
}

impl NodeState {
    /// A connection that has answered, and whither.
    pub(crate) async fn connect(&self) -> Result<(Address, Connection), NotYet> {
        let mut pace = self.pace.lock().await;
        let places = self.whereabouts.places();
        if pace.tried != places {
            *pace = Pace::new(places);
        }
        if let Some((until, error)) = pace.barred.clone().filter(|(until, _)| Instant::now() < *until) {
            return Err(NotYet { tried: pace.tried.clone(), until, error });
        }
        match self.dial().await {
            Ok(connected) => {
                pace.barred = None;
                self.connected.fetch_add(1, Ordering::Relaxed);
                self.health.answers();
                Ok(connected)
            }
            Err(error) => Err(self.bar(&mut pace, error)),
        }
    }

    /// A lane that is not connected hands on what it was given, or tells whoever waits why not.
    pub(crate) fn hand_on(&self, job: Job, why: &RedisError) {
        let lanes = self.lanes.get().and_then(Weak::upgrade);
        match lanes.as_deref().and_then(|lanes| connected(lanes, 0)) {
            Some(lane) => lane.send(job),
            None => job.answer(Err(why.clone())),
        }
    }

    /// A connection is at an end, without being to blame.
    pub(crate) fn left(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// A connection broke. A server that lets us in and does no work is no better than none.
    pub(crate) async fn broke(&self, worked: bool, error: RedisError) {
        self.left();
        let mut pace = self.pace.lock().await;
        if worked {
            pace.pause = PAUSE_FIRST;
        } else {
            self.bar(&mut pace, error);
        }
    }

    fn bar(&self, pace: &mut Pace, error: RedisError) -> NotYet {
        let error = match pace.tried.last() {
            Some(address) => error.of_unsent(address),
            None => error,
        };
        self.fails(error.clone());
        let until = Instant::now() + pace.pause.mul_f64((self.link.dice)());
        let most = if matches!(error, RedisError::Replica { .. }) { PAUSE_MAX_REPLICA } else { PAUSE_MAX };
        pace.pause = most.min(pace.pause * 2);
        pace.barred = Some((until, error.clone()));
        NotYet { tried: pace.tried.clone(), until, error }
    }

    /// One lane is in trouble; the server is if all are.
    fn fails(&self, error: RedisError) {
        if self.connected.load(Ordering::Relaxed) == 0 {
            self.health.fails(error);
        }
    }

    async fn dial(&self) -> Result<(Address, Connection), RedisError> {
        let mut dialling = pin!(timeout(DIAL_MAX, self.dial_somewhere()));
        let dialled = tokio::select! {
            dialled = &mut dialling => dialled,
            () = sleep(self.link.stall()) => {
                // Whoever asks meanwhile should not wait for it.
                self.fails(self.whereabouts.unreached());
                dialling.await
            }
        };
        let (address, dialogue) = dialled.unwrap_or_else(|_| Err(self.whereabouts.unreached()))?;
        Ok((address, dialogue.into_connection()))
    }

    /// A connection of one's own, for what is said now and then, and whither. It says nothing about how the server is.
    pub(crate) async fn dialogue(&self) -> Result<(Address, Dialogue), RedisError> {
        let dialled = timeout(DIAL_MAX, self.dial_somewhere()).await;
        dialled.unwrap_or_else(|_| Err(self.whereabouts.unreached()))
    }

    /// Tries every place where it may be, and begins again if it turns out to be elsewhere.
    async fn dial_somewhere(&self) -> Result<(Address, Dialogue), RedisError> {
        loop {
            let places = self.whereabouts.known().await?;
            let tried = async {
                let mut failed = RedisError::Closed;
                for address in &places {
                    match self.enter(address).await {
                        Ok(dialogue) => return Ok((address.clone(), dialogue)),
                        Err(error) => failed = error,
                    }
                }
                Err(failed)
            };
            tokio::select! {
                tried = tried => return tried,
                () = self.whereabouts.differs(&places) => (),
            }
        }
    }

    /// Connects, is let in, and sees that it works: with the call that carries out nothing.
    async fn enter(&self, address: &Address) -> Result<Dialogue, RedisError> {
        let Link { door, terms, scripts, .. } = &*self.link;
        let mut dialogue = door.enter(address, self.link.stall()).await?;
        let mut probe = Vec::new();
        Call::new(&mut [], *terms, scripts).write(&mut probe, true);
        let answer = async {
            dialogue.say(&probe).await?;
            match dialogue.hear().await? {
                Reply::Error(answer) => Err(RedisError::Refused(answer)),
                _ => Ok(()),
            }
        };
        match timeout(self.link.probe(), answer).await {
            Err(_) => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            // It would have run it, had it known it.
            Ok(Err(error)) if error.is("NOSCRIPT") => (),
            Ok(answer) => answer?,
        }
        if matches!(self.whereabouts, Whereabouts::Watched { .. }) {
            takes_writes(&mut dialogue, address).await?;
        }
        Ok(dialogue)
    }
}

/// Sentinels may be late to know: the server itself says what it is.
async fn takes_writes(dialogue: &mut Dialogue, address: &Address) -> Result<(), RedisError> {
    let role = dialogue.ask(&[b"ROLE"]).await?;
    match role.parts().and_then(|parts| parts.first()).and_then(Reply::text) {
        Some("master") => Ok(()),
        Some(_) => Err(RedisError::Replica { address: address.to_string().into() }),
        None => Err(RedisError::Nonsense("a server says nothing of its role")),
    }
}
