# shellcheck shell=bash
# Slurm on one node: munge, slurmdbd with MariaDB, slurmctld, slurmd, slurmrestd with tokens, and sshd for its users.
# "slurm" keeps ended jobs for MinJobAge=300 s as shipped; "slurm-purge" forgets them after two.

slurm_ports() {
  case $1 in
    slurm) CTLD=6817 NODE=6818 DBD=6819 REST=6820 SSH=2222 MIN_JOB_AGE=300 CLUSTER=lab ;;
    slurm-purge) CTLD=16817 NODE=16818 DBD=16819 REST=16820 SSH=12222 MIN_JOB_AGE=2 CLUSTER=labpurge ;;
  esac
}

slurm_up() {
  local cell=$1 dir=$LAB/$1
  slurm_ports "$cell"
  mkdir -p "$dir/log"
  # Accounting was in the memory of the cell: without it, what the controller remembers is of no use.
  cell_alive "$cell" >/dev/null || rm -rf "$dir/spool"
  slurm_config "$cell"
  cell_up "$cell"

  part_up "$cell" munged setpriv --reuid munge --regid munge --clear-groups \
    munged --foreground --num-threads=2 --key-file=/etc/slurm/munge.key --seed-file=/run/munge/seed
  # shellcheck disable=SC2016 # expanded by the shell inside the cell
  in_cell "$cell" "$BASH" -euc '[[ -d $1 ]] || { mkdir "$1.new"; tar -xpf "$2" -C "$1.new"; mv "$1.new" "$1"; }' \
    database "$dir/state/mysql" "$(slurm_database).tar"
  # No network, and nothing that outlives the machine's memory: no flushing either.
  part_up "$cell" mariadbd mariadbd --no-defaults --user=mysql --datadir="$dir/state/mysql" --socket=/run/mysqld/mysqld.sock \
    --skip-networking --innodb-buffer-pool-size=64M --innodb-log-file-size=4M --innodb-lock-wait-timeout=900 \
    --innodb-flush-log-at-trx-commit=0
  part_ready "$cell" munged in_cell "$cell" munge --no-input
  part_ready "$cell" mariadbd in_cell "$cell" mariadb --no-defaults -e "create user if not exists slurm@localhost; grant all on *.* to slurm@localhost"
  slurm_part "$cell" slurmdbd "$DBD" slurmdbd -D
  part_ready "$cell" "slurmdbd mariadbd munged" in_cell "$cell" sacctmgr --noheader list cluster
  slurm_accounts "$cell"
  slurm_part "$cell" slurmctld "$CTLD" slurmctld -D
  slurm_part "$cell" slurmd "$NODE" slurmd -D -N node1
  slurm_part "$cell" slurmrestd "$REST" env SLURM_JWT=daemon setpriv --reuid slurmrest --regid slurmrest --clear-groups \
    slurmrestd -a rest_auth/jwt -s v0.0.36,v0.0.37,v0.0.38,dbv0.0.36,dbv0.0.37,dbv0.0.38 -t 10 "$NODE_IP:$REST"
  slurm_part "$cell" sshd "$SSH" /usr/sbin/sshd -D -e -f /etc/slurm/sshd_config

  part_ready "$cell" "slurmctld slurmd slurmdbd munged" slurm_idle "$cell"
  if [[ ! -f $dir/run/token ]]; then slurm_token "$cell" alice 86400 | put "$dir/run/token"; fi
  part_ready "$cell" "slurmrestd slurmctld munged" slurm_ping "$cell"
  step "$cell: cluster answers"
}

# slurm_part CELL NAME PORT COMMAND...
slurm_part() {
  local cell=$1 name=$2 port=$3
  shift 3
  alive "$LAB/$cell/run/$name.pid" && return
  [[ -z $port ]] || port_free "$port" "$name of $cell"
  part_up "$cell" "$name" "$@"
}

# A question to a slurmctld that has just died would take ten seconds.
slurm_idle() { [[ $(in_cell "$1" timeout 3 sinfo --noheader --partition debug --format %T) =~ ^(idle|mixed|allocated)$ ]]; }

slurm_ping() {
  curl -sf --max-time 20 -H "X-SLURM-USER-NAME: alice" -H "X-SLURM-USER-TOKEN: $(<"$LAB/$1/run/token")" \
    "http://$NODE_IP:$REST/slurm/v0.0.38/ping"
}

# slurm_token CELL USER SECONDS
slurm_token() {
  local token
  token=$(in_cell "$1" scontrol token username="$2" lifespan="$3") || return 1
  printf '%s\n' "${token#SLURM_JWT=}"
}

# slurm_accounts CELL: the cluster and its users in accounting
slurm_accounts() {
  [[ -f $LAB/$1/run/accounts ]] && return
  in_cell "$1" sacctmgr --immediate --quiet add cluster "$CLUSTER" >>"$LAB/$1/log/accounts.log" 2>&1 || true # may be there
  in_cell "$1" sacctmgr --immediate --quiet add account lab >>"$LAB/$1/log/accounts.log" 2>&1
  in_cell "$1" sacctmgr --immediate --quiet add user alice,bob account=lab >>"$LAB/$1/log/accounts.log" 2>&1
  touch "$LAB/$1/run/accounts"
}

# slurm_config CELL: keys, homes and configuration files, seen in the cell as /etc/slurm
slurm_config() {
  local dir=$LAB/$1 etc=$LAB/$1/etc user id
  mkdir -p "$etc/keys" "$dir/home"
  # slurmctld's own memory is on disk: it survives the end of slurmctld, as on a real cluster.
  mkdir -p "$dir/spool/slurmctld" "$dir/spool/slurmd"
  if [[ ! -f $etc/munge.key ]]; then
    head -c 1024 /dev/urandom >"$etc/munge.key"
    chown munge: "$etc/munge.key"
    chmod 400 "$etc/munge.key"
    (umask 077 && head -c 32 /dev/urandom >"$etc/jwt_hs256.key")
    ssh-keygen -q -t ed25519 -N '' -C '' -f "$etc/ssh_host_key"
    ssh-keygen -q -t ed25519 -N '' -C 'lab' -f "$etc/ssh_user_key"
    known_host "$etc/ssh_host_key.pub" >"$etc/known_hosts"
  fi
  id=20001
  for user in alice bob; do
    install -m 644 "$etc/ssh_user_key.pub" "$etc/keys/$user"
    [[ -d $dir/home/$user ]] || install -d -m 755 -o "$id" -g "$id" "$dir/home/$user"
    id=$((id + 1))
  done

  # The scheduler's intervals: a job starts 0.3 s after it was submitted instead of 3 s.
  # config_overrides: more processors than the machine has, so that many small test jobs run at once.
  put "$etc/slurm.conf" <<END
ClusterName=$CLUSTER
SlurmctldHost=node1
SlurmctldPort=$CTLD
SlurmdPort=$NODE
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt_hs256.key
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=node1
AccountingStoragePort=$DBD
AccountingStoreFlags=job_comment,job_env,job_script
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=$dir/spool/slurmctld
SlurmdSpoolDir=$dir/spool/slurmd
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldDebug=info
SlurmctldLogFile=$dir/log/slurmctld.dated.log
LogTimeFormat=iso8601_ms
SlurmdDebug=info
MailProg=/bin/true
KillWait=30
MaxJobCount=100000
MinJobAge=$MIN_JOB_AGE
NodeName=node1 CPUs=64 RealMemory=16000 State=UNKNOWN
PartitionName=debug Nodes=node1 Default=YES MaxTime=INFINITE DefaultTime=00:10:00 State=UP
PartitionName=long Nodes=node1 Default=NO MaxTime=INFINITE DefaultTime=01:00:00 State=UP
END

  put "$etc/slurmdbd.conf" <<END
AuthType=auth/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt_hs256.key
DbdHost=node1
DbdPort=$DBD
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct
PidFile=/run/slurm/slurmdbd.pid
END
  chmod 600 "$etc/slurmdbd.conf" # slurmdbd insists

  put "$etc/sshd_config" <<END
Port $SSH
ListenAddress $NODE_IP
HostKey /etc/slurm/ssh_host_key
PidFile none
AuthorizedKeysFile /etc/slurm/keys/%u
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin no
UseDNS no
PrintMotd no
MaxSessions 100
MaxStartups 100:30:200
Subsystem sftp internal-sftp
END
}

known_host() { printf '[%s]:%s %s\n' "$NODE_IP" "$SSH" "$(cut -d' ' -f1,2 "$1")"; }

slurm_down() { cell_down "$1"; }

slurm_env() {
  slurm_ports "$1"
  local prefix=BRIDGE_LAB_SLURM
  [[ $1 == slurm ]] || prefix=BRIDGE_LAB_SLURM_PURGE
  echo "${prefix}_URL=http://$NODE_IP:$REST"
  echo "${prefix}_USER=alice"
  [[ ! -f $LAB/$1/run/token ]] || echo "${prefix}_TOKEN=$(<"$LAB/$1/run/token")"
  echo "${prefix}_HOME=$LAB/$1/home/alice"
  echo "${prefix}_SSH=alice@$NODE_IP:$SSH"
  echo "${prefix}_SSH_KEY=$LAB/$1/etc/ssh_user_key"
  echo "${prefix}_SSH_KNOWN_HOSTS=$LAB/$1/etc/known_hosts"
}
