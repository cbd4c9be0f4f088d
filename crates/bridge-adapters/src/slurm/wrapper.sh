
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

bridge_child=
bridge_interrupted=
bridge_signal() {
    bridge_interrupted=$1
    [ -n "$bridge_child" ] || return 0
    # Most signals reach all processes of a job, this one included; the script must not meet them twice.
    [ "$1" = TERM ] && sleep 1
    kill -s "$1" "$bridge_child" 2>/dev/null
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
else
    bridge_say 'neither curl nor GNU wget is on this node, so no data can be moved; install one of them'
    exit @NO_CLIENT@
fi

# URLs are handed over on standard input: a process's arguments can be seen by all.
bridge_fetch() {
    case $bridge_client in
    curl)
        printf 'url = "%s"\n' "$1" | curl --config - --globoff --fail --silent --show-error --connect-timeout 20 \
            --speed-limit 1 --speed-time 120 --retry 5 --retry-delay 2 \
            ${bridge_authorities:+--cacert "$bridge_authorities"} --output "$2"
        ;;
    wget)
        printf '%s\n' "$1" | wget --quiet --input-file=- --tries=6 --waitretry=5 --connect-timeout=20 \
            --read-timeout=120 ${bridge_authorities:+--ca-certificate="$bridge_authorities"} --output-document="$2"
        ;;
    esac
}

bridge_put() {
    case $bridge_client in
    curl)
        printf 'url = "%s"\n' "$1" | curl --config - --globoff --fail --silent --show-error --connect-timeout 20 \
            --speed-limit 1 --speed-time 120 --retry 5 --retry-delay 2 \
            ${bridge_authorities:+--cacert "$bridge_authorities"} --header 'Expect:' --header '@MARK@' \
            --upload-file "$2" --output /dev/null
        ;;
    wget)
        printf '%s\n' "$1" | wget --quiet --input-file=- --tries=6 --waitretry=5 --connect-timeout=20 \
            --read-timeout=120 ${bridge_authorities:+--ca-certificate="$bridge_authorities"} --method=PUT \
            --header '@MARK@' --body-file="$2" --output-document=/dev/null
        ;;
    esac
}

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
bridge_report() {
    [ -n "$bridge_report_url" ] || return 0
    bridge_put "$bridge_report_url" "$bridge_work/report" || bridge_say 'the account of what was sent could not be sent'
}
bridge_note() {
    printf '%s\n' "$*" >>"$bridge_work/report"
}

# What to call it, the file, the URL.
bridge_send() {
    if [ ! -f "$2" ]; then
        bridge_note "missing - - $1"
        bridge_say "there is no file $2 to send"
        return 0
    fi
    bridge_try=1
    while :; do
        bridge_bytes=$(bridge_size "$2")
        if [ -z "$bridge_bytes" ]; then
            bridge_note "failed unreadable - $1"
            return 0
        fi
        if [ "$bridge_bytes" -gt @LARGEST@ ]; then
            bridge_note "large $bridge_bytes - $1"
            bridge_say "$2 has $bridge_bytes bytes, more than can be sent"
            return 0
        fi
        bridge_digest=$(bridge_sum "$2")
        bridge_interrupted=
        bridge_put "$3" "$2"
        bridge_status=$?
        # Someone may still write to it; a signal to the whole job ends the transfer as well.
        if [ "$bridge_status" -eq 0 ] && [ "$(bridge_size "$2")" = "$bridge_bytes" ]; then
            bridge_note "sent $bridge_bytes ${bridge_digest:--} $1"
            return 0
        fi
        if [ "$bridge_try" -ge 3 ] || { [ "$bridge_status" -ne 0 ] && [ -z "$bridge_interrupted" ]; }; then
            break
        fi
        bridge_try=$((bridge_try + 1))
    done
    bridge_note "failed $bridge_client-$bridge_status - $1"
    bridge_say "$2 could not be sent ($bridge_client ended with $bridge_status)"
}

# An output of the job itself, by the number of its descriptor.
bridge_send_output() {
    if [ ! -f "/proc/$$/fd/$2" ]; then
        bridge_note "merged - - $1"
    else
        bridge_send "$1" "/proc/$$/fd/$2" "$3"
    fi
}

bridge_outputs() {
    :
@OUTPUTS@
}

bridge_finish() {
    bridge_child=
    bridge_outputs
    bridge_note "end $1"
    bridge_report
    exit "$1"
}

# Other tasks of the same array may fetch the same input into the same folder, on other nodes.
bridge_draft=bridge-${SLURM_JOB_ID:-0}-$$

bridge_input() {
    if ! bridge_fetch "$3" "$1.$bridge_draft"; then
        rm -f "$1.$bridge_draft"
        [ "$bridge_interrupted" != TERM ] || bridge_finish 143
        bridge_say "the input $1 could not be fetched"
        bridge_finish @NO_INPUT@
    fi
    if [ "$(bridge_size "$1.$bridge_draft")" != "$2" ]; then
        rm -f "$1.$bridge_draft"
        bridge_say "the input $1 did not arrive whole; the disk may be full"
        bridge_finish @NO_INPUT@
    fi
    mv -f "$1.$bridge_draft" "$1" || bridge_finish @NO_INPUT@
}

bridge_decode() {
    if command -v base64 >/dev/null 2>&1; then
        base64 -d
    else
        openssl base64 -d
    fi
}

bridge_note start
bridge_report
bridge_decode >"$bridge_work/script" <<'BRIDGE_SCRIPT'
@SCRIPT@
BRIDGE_SCRIPT
if ! chmod 700 "$bridge_work/script" || [ "$(bridge_size "$bridge_work/script")" != @SCRIPT_SIZE@ ]; then
    bridge_say 'the script could not be written; the disk may be full'
    bridge_finish @NO_PLACE@
fi
@INPUTS@

# A background process of a shell without a terminal ignores two signals, unless told otherwise.
bridge_env=
if env --default-signal=INT,QUIT true 2>/dev/null; then
    bridge_env='env --default-signal=INT,QUIT'
fi
exec 3<&0
[ "$bridge_interrupted" != TERM ] || bridge_finish 143
bridge_interrupted=
$bridge_env "$bridge_work/script" "$@" <&3 3<&- &
bridge_child=$!
bridge_code=
while :; do
    wait "$bridge_child"
    bridge_status=$?
    if [ -z "$bridge_code" ] || [ "$bridge_status" -ne 127 ]; then
        bridge_code=$bridge_status
    fi
    [ -n "$bridge_interrupted" ] || break
    bridge_interrupted=
done
bridge_finish "$bridge_code"
