
# This job fetches its inputs and sends its outputs by itself. The URLs below are as good as keys until they end:
# do not pass this file on.

bridge_say() {
    printf 'bridge: %s\n' "$*" >&2
}

bridge_expires=@EXPIRES@
if [ "$(date +%s)" -ge "$bridge_expires" ]; then
    bridge_say 'the URLs for its data ended before this job started'
    exit @EXPIRED@
fi

# A folder that nobody else can look into and that programs can be run from.
bridge_work=
for bridge_place in "${TMPDIR:-/tmp}" "$PWD" "${HOME:-/}"; do
    bridge_work=$(mktemp -d "$bridge_place/.bridge-XXXXXXXX" 2>/dev/null) || {
        bridge_work=
        continue
    }
    if printf '#!/bin/sh\nexit 0\n' >"$bridge_work/probe" && chmod 700 "$bridge_work/probe" &&
        "$bridge_work/probe" 2>/dev/null; then
        break
    fi
    rm -rf "$bridge_work"
    bridge_work=
done
if [ -z "$bridge_work" ]; then
    bridge_say 'no folder was found from which a script can be run; set TMPDIR to one'
    exit @NO_PLACE@
fi
trap 'rm -rf "$bridge_work"' EXIT

# Seconds on a clock that nobody sets.
bridge_clock() {
    if read -r bridge_time _ 2>/dev/null </proc/uptime; then
        bridge_time=${bridge_time%%.*}
    else
        bridge_time=$(date +%s)
    fi
}

# How many seconds may be lost on failures until the next call of this, for all transfers together: a store that comes
# back soon must not cost the results of days, and one that does not must not keep the node. A job that is being
# cancelled is killed soon, so it loses little.
bridge_patience=300
bridge_patience_cancelled=10
bridge_cancelled_at=
bridge_allow() {
    bridge_lost=0
    bridge_budget=$1
    [ -n "$bridge_cancelled_at" ] || return 0
    bridge_clock
    if [ $((bridge_time - bridge_cancelled_at)) -lt 60 ] && [ "$1" -gt $bridge_patience_cancelled ]; then
        bridge_budget=$bridge_patience_cancelled
    fi
}

# A process that any signal ends. It tells a signal for all processes of the job, as Slurm sends it to cancel one, from
# a signal for this one alone.
bridge_canary=
bridge_watch() {
    bridge_canary=
    [ -p "$bridge_work/pipe" ] || return 0
    # A child of this shell, because some Slurms find the processes of a job by their parents. It ends by itself, because
    # some shells tell of each child that a signal has ended, and with this shell, which holds the other end.
    $bridge_env sh -c 'trap "exit 0" HUP INT QUIT TERM USR1 USR2; read -r _' \
        >/dev/null 2>&1 <"$bridge_work/pipe" 3<&- 4<&- &
    bridge_canary=$!
}
bridge_canary_ended() {
    [ -n "$bridge_canary" ] || return 1
    if [ -r /proc/self/stat ]; then
        bridge_state=
        { read -r _ _ bridge_state _ <"/proc/$bridge_canary/stat"; } 2>/dev/null
        case $bridge_state in
        '' | X | Z) return 0 ;;
        *) return 1 ;;
        esac
    fi
    ! kill -0 "$bridge_canary" 2>/dev/null
}

# A signal that all processes were sent may reach this one first.
bridge_reached_all() {
    bridge_looks=0
    while ! bridge_canary_ended; do
        [ "$bridge_looks" -lt 10 ] || return 1
        bridge_looks=$((bridge_looks + 1))
        sleep 0.1 2>/dev/null || {
            sleep 1
            bridge_looks=10
        }
    done
}

bridge_child=
bridge_interrupted=
bridge_outlived=
bridge_signal() {
    bridge_interrupted=$1
    if [ -n "$bridge_child" ] && kill -0 "$bridge_child" 2>/dev/null; then
        bridge_outlived=1
    fi
    if [ "$1" = TERM ]; then
        bridge_clock
        bridge_cancelled_at=$bridge_time
        # What a transfer took until now, before it was ended as well, is not lost on a failure.
        bridge_began=$bridge_time
        bridge_wait=0
        bridge_allow "$bridge_patience_cancelled"
    fi
    [ -n "$bridge_child" ] || {
        bridge_early=$1
        return 0
    }
    # The script must not meet a signal twice: the second would break off what it does about the first. No other canary
    # is started here: a further signal may have come to all already, and that one would have outlived it.
    bridge_reached_all || kill -s "$1" "$bridge_child" 2>/dev/null
    return 0
}
for bridge_name in HUP INT QUIT TERM USR1 USR2; do
    # shellcheck disable=SC2064
    trap "bridge_signal $bridge_name" "$bridge_name"
done

bridge_authorities=
@AUTHORITIES@
bridge_client=
if command -v curl >/dev/null 2>&1; then
    bridge_client=curl
elif command -v wget >/dev/null 2>&1 && wget --help 2>&1 | grep -q -e --body-file; then
    bridge_client=wget
    # It takes no file but a real one for its settings.
    : >"$bridge_work/settings"
    : >"$bridge_work/said"
else
    bridge_say 'neither curl nor GNU wget is on this node, so no data can be moved; install one of them'
    exit @NO_CLIENT@
fi

# URLs are handed over on standard input: a process's arguments can be seen by all. The user's own settings of both
# programs are left out: one that makes them talk would make them tell the URLs.
bridge_fetch() {
    bridge_body=
    # What was cancelled needs no inputs any more.
    if [ "$bridge_interrupted" = TERM ]; then
        bridge_passing=
        return 1
    fi
    case $bridge_client in
    curl)
        bridge_answer=$(printf 'url = "%s"\n' "$1" | curl -q --config - --globoff --fail --silent \
            --connect-timeout "$bridge_connect" --speed-limit 1 --speed-time "$bridge_stall" \
            ${bridge_authorities:+--cacert "$bridge_authorities"} --write-out '%{http_code}' --output "$2")
        bridge_status=$?
        ;;
    wget)
        printf '%s\n' "$1" | WGETRC="$bridge_work/settings" wget --quiet --server-response \
            --output-file="$bridge_work/said" --input-file=- --tries=1 --max-redirect=0 --connect-timeout="$bridge_connect" \
            --read-timeout="$bridge_stall" ${bridge_authorities:+--ca-certificate="$bridge_authorities"} \
            --output-document="$2"
        bridge_status=$?
        ;;
    esac
    bridge_judge
}

bridge_newline='
'
bridge_put() {
    bridge_body=
    case $bridge_client in
    curl)
        bridge_answer=$(printf 'url = "%s"\n' "$1" | curl -q --config - --globoff --silent \
            --connect-timeout "$bridge_connect" --speed-limit 1 --speed-time "$bridge_stall" \
            ${bridge_authorities:+--cacert "$bridge_authorities"} --header 'Expect:' --header '@MARK@' \
            --write-out '\n%{http_code}' --upload-file "$2")
        bridge_status=$?
        bridge_body=${bridge_answer%"$bridge_newline"*}
        bridge_answer=${bridge_answer##*"$bridge_newline"}
        ;;
    wget)
        printf '%s\n' "$1" | WGETRC="$bridge_work/settings" wget --quiet --server-response \
            --output-file="$bridge_work/said" --input-file=- --tries=1 --max-redirect=0 --connect-timeout="$bridge_connect" \
            --read-timeout="$bridge_stall" ${bridge_authorities:+--ca-certificate="$bridge_authorities"} \
            --method=PUT --header '@MARK@' --body-file="$2" --output-document=/dev/null
        bridge_status=$?
        ;;
    esac
    bridge_judge
}

# What came of a transfer; after a failure, what to call it and whether it may pass.
bridge_judge() {
    if [ "$bridge_client" = wget ]; then
        bridge_answer=
        while read -r bridge_word bridge_number _; do
            case $bridge_word in
            HTTP/*) bridge_answer=$bridge_number ;;
            esac
        done <"$bridge_work/said"
    fi
    case $bridge_status-$bridge_answer in
    0-2?? | 0-) return 0 ;;
    esac
    bridge_passing=1
    case $bridge_answer-$bridge_body in
    # What S3 calls a connection that was silent for a while.
    307-* | 408-* | 429-* | 5??-* | 400-*'<Code>RequestTimeout</Code>'*) bridge_trouble=status-$bridge_answer ;;
    [34]??-*)
        bridge_trouble=status-$bridge_answer
        bridge_passing=
        ;;
    *)
        bridge_trouble=$bridge_client-$bridge_status
        case $bridge_trouble in
        # It was called wrongly, or a file here cannot be written or read.
        curl-[1-4] | curl-23 | curl-26 | wget-2 | wget-3) bridge_passing= ;;
        esac
        ;;
    esac
    return 1
}

# One try, within the time that may still be lost. A transfer that goes on takes as long as it takes.
bridge_try() {
    bridge_passing=
    bridge_left=$((bridge_budget - bridge_lost))
    [ "$bridge_left" -gt 0 ] || return 1
    bridge_clock
    bridge_began=$bridge_time
    bridge_connect=20
    [ "$bridge_left" -ge "$bridge_connect" ] || bridge_connect=$bridge_left
    bridge_stall=120
    [ "$bridge_left" -ge "$bridge_stall" ] || bridge_stall=$bridge_left
    if "$@"; then
        return 0
    fi
    [ -n "$bridge_passing" ] || return 1
    bridge_clock
    bridge_took=$((bridge_time - bridge_began))
    # One that was broken off has gone on until the store fell silent.
    [ "$bridge_took" -le "$bridge_stall" ] || bridge_took=$bridge_stall
    bridge_lost=$((bridge_lost + bridge_took))
    if [ -z "$bridge_told" ]; then
        bridge_told=1
        bridge_say "the object store fails ($bridge_trouble); it is asked again for a while"
    fi
    return 1
}

bridge_rest() {
    bridge_wait=$bridge_pause
    while [ "$bridge_wait" -gt 0 ] && [ "$bridge_lost" -lt "$bridge_budget" ]; do
        sleep 1
        bridge_wait=$((bridge_wait - 1))
        bridge_lost=$((bridge_lost + 1))
    done
    bridge_pause=$((bridge_pause * 2))
    [ $bridge_pause -le 10 ] || bridge_pause=10
}

# Does something until it is done, will not pass, or too much time was lost.
bridge_persist() {
    bridge_trouble=given-up
    bridge_pause=1
    while [ "$bridge_lost" -lt "$bridge_budget" ]; do
        if bridge_try "$@"; then
            return 0
        fi
        [ -n "$bridge_passing" ] || break
        bridge_rest
    done
    return 1
}
bridge_told=
bridge_wait=0

bridge_size() {
    wc -c <"$1" 2>/dev/null | tr -d ' '
}

bridge_sum() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum <"$1" | cut -c1-64
    elif command -v openssl >/dev/null 2>&1; then
        openssl dgst -sha256 -r <"$1" | cut -c1-64
    else
        printf -- '-\n'
    fi
}

bridge_report_url='@REPORT@'
# How to send it: with one try, or until it has arrived.
bridge_report() {
    [ -n "$bridge_report_url" ] || return 0
    bridge_trouble=given-up
    "$1" bridge_put "$bridge_report_url" "$bridge_work/report" ||
        bridge_say "the account of what was sent could not be sent ($bridge_trouble)"
}
# In case the job is killed while it sends the rest.
bridge_report_so_far() {
    [ "$bridge_due" != all ] || bridge_report bridge_try
}
bridge_note() {
    printf '%s\n' "$*" >>"$bridge_work/report"
}

# Which file it is and when it was last changed; nothing where that cannot be told.
bridge_look() {
    stat -L -c '%d %i %s %y %z' "$1" 2>/dev/null
}

# The file, the URL. One that someone still writes to is sent again, up to three times.
bridge_send_once() {
    bridge_passing=
    bridge_before=$bridge_looked
    # First of all, so that it tells of every change from here on.
    bridge_looked=$(bridge_look "$1")
    bridge_bytes=$(bridge_size "$1")
    if [ -z "$bridge_bytes" ]; then
        bridge_trouble=unreadable
        return 1
    fi
    if [ "$bridge_bytes" -gt @LARGEST@ ]; then
        bridge_trouble=large
        return 1
    fi
    if [ -z "$bridge_looked" ] || [ "$bridge_looked" != "$bridge_before" ]; then
        bridge_digest=$(bridge_sum "$1")
    fi
    bridge_put "$2" "$1" || return 1
    if [ "$(bridge_look "$1")" = "$bridge_looked" ] && [ "$(bridge_size "$1")" = "$bridge_bytes" ]; then
        return 0
    fi
    bridge_trouble=changed
    bridge_changes=$((bridge_changes + 1))
    [ "$bridge_changes" -ge 3 ] || bridge_passing=1
    return 1
}

# A listed file that lies here already is another job's, or of an earlier run of this one, which counts. Times are not
# compared with a clock: that of a file server may be another.
bridge_known() {
    [ "${SLURM_RESTART_COUNT:-0}" = 0 ] || return 0
    bridge_look "$1" >>"$bridge_work/known"
}

# Whether this file is one to send; if not, that is noted.
bridge_is_due() {
    if [ ! -f "$2" ]; then
        bridge_note "missing - - $1"
        bridge_say "there is no file $2 to send"
        return 1
    fi
    bridge_seen=$(bridge_look "$2")
    if [ -n "$bridge_seen" ] && grep -q -x -F -e "$bridge_seen" "$bridge_work/known" 2>/dev/null; then
        bridge_note "stale - - $1"
        bridge_say "$2 was there before this job started and is not its own; it is not sent"
        return 1
    fi
    return 0
}

bridge_restore() {
    bridge_bytes=$1
    bridge_digest=$2
    bridge_changes=$3
    bridge_trouble=$4
    shift 4
    bridge_looked=$*
}

# What to call it, the file, the URL. One that fails and may pass waits for the next round; of what is kept for it only
# the last may have spaces.
bridge_send() {
    bridge_turn=$((bridge_turn + 1))
    case $bridge_due in
    all)
        bridge_is_due "$1" "$2" || return 0
        bridge_restore - - 0 given-up
        ;;
    *" $bridge_turn "*) eval "bridge_restore \$bridge_kept_$bridge_turn" ;;
    *) return 0 ;;
    esac
    if bridge_try bridge_send_once "$2" "$3"; then
        bridge_note "sent $bridge_bytes ${bridge_digest:--} $1"
    elif [ -n "$bridge_passing" ]; then
        eval "bridge_kept_$bridge_turn='$bridge_bytes ${bridge_digest:--} $bridge_changes $bridge_trouble $bridge_looked'"
        bridge_later="$bridge_later $bridge_turn "
    elif [ "$bridge_trouble" = large ]; then
        bridge_note "large $bridge_bytes - $1"
        bridge_say "$2 has $bridge_bytes bytes, more than can be sent"
    else
        bridge_note "failed $bridge_trouble - $1"
        bridge_say "$2 could not be sent ($bridge_trouble)"
    fi
}

bridge_merged() {
    [ "$bridge_due" != all ] || bridge_note "merged - - $1"
}

# An output of the job itself, by the number of its descriptor.
bridge_send_output() {
    if [ ! -f "/proc/$$/fd/$2" ]; then
        bridge_merged "$1"
    else
        bridge_send "$1" "/proc/$$/fd/$2" "$3"
    fi
}

bridge_outputs() {
    :
@OUTPUTS@
}

# Each has one try before any has a second: one that always fails must not cost those after it.
bridge_send_all() {
    bridge_pause=1
    bridge_due=all
    while [ -n "$bridge_due" ]; do
        bridge_turn=0
        bridge_later=
        bridge_outputs
        bridge_due=$bridge_later
        [ -z "$bridge_due" ] || bridge_rest
    done
}

bridge_finish() {
    bridge_child=
    exec 4<&-
    bridge_allow $bridge_patience
    bridge_send_all
    bridge_note "end $1"
    # A store that is back by now should hear what it has missed.
    bridge_allow 60
    bridge_report bridge_persist
    exit "$1"
}

# Other tasks of the same array may fetch the same input into the same folder, on other nodes.
bridge_draft=bridge-${SLURM_JOB_ID:-0}-$$

# The file, and why it is not one.
bridge_no_input() {
    rm -f "$1.$bridge_draft"
    # A signal for all has ended whatever looked at it, too.
    [ "$bridge_interrupted" != TERM ] || bridge_finish 143
    bridge_say "the input $1 $2"
    bridge_finish @NO_INPUT@
}

# The file, its size, its checksum if that is known, the URL.
bridge_input() {
    if [ -d "$1" ]; then
        bridge_no_input "$1" 'could not be put in its place: a folder of this name is there; rename one of them'
    fi
    if ! bridge_persist bridge_fetch "$4" "$1.$bridge_draft"; then
        case $bridge_trouble in
        curl-23 | wget-3) bridge_trouble='it cannot be written here; the disk may be full' ;;
        esac
        bridge_no_input "$1" "could not be fetched ($bridge_trouble)"
    fi
    if [ "$(bridge_size "$1.$bridge_draft")" != "$2" ]; then
        bridge_no_input "$1" 'did not arrive whole; the disk may be full'
    fi
    bridge_digest=$3
    [ "$3" = - ] || bridge_digest=$(bridge_sum "$1.$bridge_draft")
    if [ "$bridge_digest" != "$3" ] && [ "$bridge_digest" != - ]; then
        bridge_no_input "$1" 'does not match its checksum'
    fi
    if ! mv -f "$1.$bridge_draft" "$1"; then
        bridge_no_input "$1" 'could not be put in its place'
    fi
}

bridge_decode() {
    if command -v base64 >/dev/null 2>&1; then
        base64 -d
    else
        openssl base64 -d
    fi
}

bridge_note start
bridge_allow 60
bridge_report bridge_persist
bridge_decode >"$bridge_work/script" <<'BRIDGE_SCRIPT'
@SCRIPT@
BRIDGE_SCRIPT
if ! chmod 700 "$bridge_work/script" || [ "$(bridge_size "$bridge_work/script")" != @SCRIPT_SIZE@ ]; then
    bridge_say 'the script could not be written; the disk may be full'
    bridge_finish @NO_PLACE@
fi
bridge_allow $bridge_patience
@KNOWN@@INPUTS@

# A background process of a shell without a terminal ignores two signals, unless told otherwise.
bridge_env=
if env --default-signal=INT,QUIT true 2>/dev/null; then
    bridge_env='env --default-signal=INT,QUIT'
fi
if mkfifo "$bridge_work/pipe" 2>/dev/null; then
    exec 4<>"$bridge_work/pipe"
fi
bridge_watch
exec 3<&0
bridge_early=
[ "$bridge_interrupted" != TERM ] || bridge_finish 143
$bridge_env "$bridge_work/script" "$@" <&3 3<&- 4<&- &
bridge_child=$!
# A signal that came between these two lines found nobody to hand it on to.
[ -z "$bridge_early" ] || kill -s "$bridge_early" "$bridge_child" 2>/dev/null
bridge_code=
bridge_untold=1
while :; do
    bridge_interrupted=
    bridge_outlived=
    if bridge_canary_ended; then
        bridge_watch
    fi
    # What came just now may have ended that one, too.
    [ -z "$bridge_interrupted" ] || continue
    wait "$bridge_child"
    bridge_status=$?
    # 127 is also what a shell says of a process whose code it has told already.
    if [ -n "$bridge_untold" ] || [ "$bridge_status" -ne 127 ]; then
        bridge_code=$bridge_status
    fi
    # A signal may have ended the waiting alone.
    if [ -z "$bridge_interrupted" ] || [ "$bridge_status" -le 128 ]; then
        break
    fi
    bridge_untold=$bridge_outlived
done
bridge_finish "$bridge_code"
