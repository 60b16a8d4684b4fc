//! Looks at the logs once, or until what is waited for has happened.

use ansible_module::{ErrorCode, Failure, Run};
use host::Host;
use netboot::chain::{Chain, State};

use crate::args::{Args, WaitFor};
use crate::report;
use crate::sources::Sources;

pub(crate) fn observe(args: &Args, host: &Host, run: &Run) -> Result<Chain, Failure> {
    let mut sources = Sources::open(args, host)?;
    let mut look = || {
        sources.read(run)?;
        Ok::<_, Failure>(Chain::of(&args.machine, &sources.events))
    };
    let wanted = match args.wait_for {
        Some(wanted) if !run.check_mode => wanted,
        _ => return look(),
    };
    let mut last = None;
    let found = run.deadline.poll(|| {
        let chain = look()?;
        if is_there(wanted, &chain) {
            return Ok(Some(chain));
        }
        if matches!(chain.state, State::WrongAddress | State::Reinstalling) {
            return Err(in_vain(args, wanted, &chain));
        }
        last = Some(chain);
        Ok(None)
    });
    found.map_err(|failure| match &last {
        Some(chain) if failure.code == ErrorCode::TIMEOUT => explained(args, wanted, chain, failure),
        _ => failure,
    })
}

fn is_there(wanted: WaitFor, chain: &Chain) -> bool {
    match wanted {
        WaitFor::Served => chain.served().is_some() && chain.state != State::WrongAddress,
        WaitFor::State(state) => chain.state == state,
    }
}

/// No time makes this right.
fn in_vain(args: &Args, wanted: WaitFor, chain: &Chain) -> Failure {
    explained(args, wanted, chain, Failure::new(ErrorCode::CONFLICT, "not waited any longer"))
}

fn explained(args: &Args, wanted: WaitFor, chain: &Chain, failure: Failure) -> Failure {
    let (state, cure) = (chain.state.name(), chain.state.cure());
    let msg = format!(
        "waiting for `{}` of {}: {}. Its state is `{state}`: {}. What to do: {cure}",
        wanted.name(),
        args.machine.mac,
        failure.msg,
        chain.symptom
    );
    let mut failure = Failure { msg, ..failure };
    failure.details.extend(report::report(args, chain));
    failure
}
