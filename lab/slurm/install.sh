# shellcheck shell=bash
# What Slurm needs: Debian's packages, and an empty database prepared once (initialising one takes seconds).

slurm_packages() {
  echo slurmctld slurmd slurmrestd slurmdbd slurm-client munge slurm-wlm-basic-plugins slurm-wlm-jwt-plugin \
    slurm-wlm-mysql-plugin mariadb-server openssh-server openssh-client curl jq
}

# slurm_database: the folder of the prepared database; another version of MariaDB has its own
slurm_database() { printf '%s' "$LAB_CACHE/mariadb-$(dpkg-query --show --showformat='${Version}' mariadb-server | tr -c 'a-zA-Z0-9.\n' '-')"; }

slurm_install() {
  local folder work
  folder=$(slurm_database)
  [[ -f $folder.tar ]] && return
  require_space "$LAB_CACHE" 1 "the prepared database of Slurm"
  say "preparing an empty database for Slurm, once"
  work=$(mktemp -d /var/tmp/bridge-mariadb.XXXXXX) # not in the cache: that is no place the user mysql may enter
  chown mysql: "$work"
  # A small redo log: the whole database is copied into memory at each start.
  mariadb-install-db --no-defaults --user=mysql --datadir="$work/data" --innodb-log-file-size=4M \
    --auth-root-authentication-method=socket --skip-test-db >"$LAB_CACHE/mariadb.log" 2>&1 ||
    die "MariaDB's first database could not be made: see $LAB_CACHE/mariadb.log"
  tar --create --file "$folder.tar.new" --directory "$work/data" .
  mv "$folder.tar.new" "$folder.tar"
  rm -rf "$work"
}
