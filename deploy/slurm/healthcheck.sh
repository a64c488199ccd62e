#!/bin/sh
# HealthCheckProgram of Slurm: drains the node when fabricpulse says that a part has failed, and
# resumes it when that is over. In slurm.conf:
#
#   HealthCheckProgram=/usr/libexec/fabricpulse/healthcheck.sh
#   HealthCheckInterval=120
#   HealthCheckNodeState=ANY,CYCLE
#
# It reads what the agent knows already and starts no test: Slurm ends this program after 60 s and
# runs it on many nodes at once.
#
# It drains only where a part has failed. Degraded and unknown drain nothing, and neither does an
# agent that is away. It resumes only what it drained, known by the reason's first word, and only
# when nothing has failed and nothing is unknown. It always exits with 0, since newer versions of
# slurmd don't register a node until then.
set -u

# slurmd starts this with next to no environment. Set SLURM_CONF here if slurm.conf is not where
# scontrol looks for it.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL

# What the reasons begin with, as `fabricpulse check --format slurm` prints them.
ours='fabricpulse:'

say() {
    logger -t fabricpulse-healthcheck -- "$1"
}

give_up() {
    say "$1"
    exit 0
}

node=${SLURMD_NODENAME:-$(hostname -s)}

reason=$(timeout 10 fabricpulse check --format slurm 2>/dev/null)
case $? in
    0) want=resume ;;
    1) want=drain ;;
    *) give_up "fabricpulse check did not answer; nothing is changed" ;;
esac

# One line, state and reason: "draining fabricpulse: pcie ...", "idle none".
standing=$(timeout 20 sinfo --noheader --Node --nodes="$node" --format='%T %E' | head -n 1)
state=${standing%% *}
known=${standing#* }
[ -n "$state" ] || give_up "sinfo says nothing of $node; nothing is changed"

if [ "$want" = drain ]; then
    case $state in
        # It is drained already, by us or by somebody whose reason must not be lost.
        drain* | down* | fail*) exit 0 ;;
    esac
    # A quotation mark would end the reason early.
    reason=$(printf '%s' "$reason" | tr -d '"')
    if timeout 20 scontrol update NodeName="$node" State=DRAIN Reason="$reason"; then
        say "$node is drained: $reason"
    else
        say "$node could not be drained: $reason"
    fi
    exit 0
fi

case $state in
    drain*) ;;
    *) exit 0 ;;
esac
case $known in
    "$ours"*) ;;
    *) exit 0 ;;
esac
# Exit 0 above also means that nothing is known. In compact JSON a quotation mark inside a string
# is escaped, so these words can only be verdicts.
verdicts=$(timeout 10 fabricpulse check --format json 2>/dev/null)
case $verdicts in
    *'"verdict":"fail"'* | *'"verdict":"unknown"'*) exit 0 ;;
    *'"verdict":'*) ;;
    *) give_up "fabricpulse check did not answer; $node stays drained" ;;
esac
if timeout 20 scontrol update NodeName="$node" State=RESUME; then
    say "$node is resumed: no part has failed any more"
else
    say "$node could not be resumed"
fi
exit 0
