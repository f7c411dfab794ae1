//! Long work that waits for nothing, beside the threads that serve.
//!
//! A serving thread takes its requests in turns, and whatever computes between two turns keeps all of them waiting.
//! Content may be large, and what it asks for larger: a bundle's tests, patterns to compile, a YAML text full of aliases
//! may each take a second (threats: T12, T13).

use crate::Failure;
use std::{sync::LazyLock, thread::available_parallelism};
use tokio::sync::Semaphore;

/// As much at once as there are processors: more would not be done sooner, and every thread that computes takes its share
/// from those that serve. Who comes later waits in line.
static PROCESSORS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, usize::from)));

/// Does some work on another thread.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let place = PROCESSORS.acquire().await.map_err(|_| Failure::Corrupt("nothing is done aside any more"))?;
    let done = tokio::task::spawn_blocking(move || {
        // The place is given back when the work is done, not when nobody waits for it any more.
        let _place = place;
        work()
    });
    done.await.map_err(|_| Failure::Corrupt("work that was done aside did not come to its end"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, time::Duration};

    #[tokio::test]
    async fn the_thread_goes_on_meanwhile() {
        let (say, heard) = mpsc::channel();
        // Ends only once the same thread has come to the second half.
        let work = aside(move || heard.recv_timeout(Duration::from_secs(10)));
        let (done, ()) = tokio::join!(work, async { say.send("on").unwrap() });
        assert_eq!(done.unwrap(), Ok("on"));
    }

    #[tokio::test]
    async fn work_that_breaks_off_is_a_failure_and_gives_its_place_back() {
        for _ in 0..=available_parallelism().map_or(1, usize::from) {
            let broken: Result<(), _> = aside(|| panic!("canary")).await;
            assert!(broken.is_err());
        }
    }
}
