"""Runs PyPI's fakepve for the lab, from a description on stdin, until stdin closes.

The first line of stdin is a JSON object:
  host, port (0: a free one), cert, key (PEM files), password of root@pam, time_scale,
  clone_secs and start_secs (PVE seconds), tokens {"user@realm!id": secret}, nodes [name],
  storages {id: {type, content, shared}}, grants [[user, path, [privilege]]],
  release (7.4, 8.2, 8.4, 9.1), stale_list (whether /cluster/resources waits for a broadcast that never comes)
  guests [{vmid, name, node, kind: qemu|lxc, template, status, config}], agents {vmid: [interface]}
Once it listens it prints {"port": N}. Nothing is kept when it ends.

fakepve leaves some of a VM's life out; what qemu-server 9.2.6 does there is added below, each with the sub of
src/PVE/API2/Qemu.pm it follows: disks that a config change allocates, detaches or removes, PUT .../resize,
move_disk to another VM, snapshots' configurations, cloud-init's drive, the normal form of netN and tags, masked
passwords, and a clone that has no name before its disks are there.

And what differs between the releases, or comes late:
  before libpve-http-server-perl 5.2.0 (8.4) an error's text stands in the reason phrase alone: its debian/changelog
    and src/PVE/APIServer/Formatter/Standard.pm, lines 21-38
  before qemu-server 8.0.2 PUT .../resize works before it answers, with null: its debian/changelog, "have resize
    endpoint spawn a worker task"; from then on also shrinking is refused by the task: src/PVE/API2/Qemu.pm, resize_vm
  /cluster/resources has name, status and template of a guest from a broadcast, and before it came only id, vmid,
    node, type, lock and tags: pve-manager PVE/API2Tools.pm, extract_vm_stats, lines 81-119, and
    PVE/API2/Cluster.pm, line 554
  the agent's addresses need VM.GuestAgent.Audit from 9.0 on, VM.Monitor before: qemu-server src/PVE/API2/Qemu/Agent.pm
"""

import asyncio
import json
import re
import sys
import urllib.parse

from aiohttp import web
from fakepve import FakePve
from fakepve.lxc import format_size, parse_size
from fakepve.model import PveError, TaskError
from fakepve.qemu import DRIVE_KEY, drives_of, is_cdrom, join_drive, split_drive, volume_ref, with_mac
from fakepve.server import USER, ok

# What PVE answers as a number, whatever it was sent as.
INTEGERS = ('balloon', 'cores', 'cpuunits', 'numa', 'onboot', 'protection', 'shares', 'sockets', 'vcpus')
UNUSED = re.compile(r'^unused(\d+)$')
CLOUD_INIT = re.compile(r'^(cicustom|cipassword|citype|ciupgrade|ciuser|nameserver|searchdomain|sshkeys|ipconfig\d+)$')
RESIZE = re.compile(r'^(\+?)(\d+(?:\.\d+)?[KMGT]?)$')
SSH_KEY = re.compile(r'^(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/]+=*( .*)?$')


def normal_tags(text):
    """Tags as PVE stores them: each once, sorted, joined by a semicolon."""
    return ';'.join(sorted({tag.lower() for tag in re.split(r'[;,\s]+', text) if tag}))


def check_ssh_keys(text):
    for line in urllib.parse.unquote(text).strip().splitlines():
        if line.strip() and not SSH_KEY.match(line.strip()):
            raise PveError(500, 'SSH public key validation error')


class LabPve(FakePve):
    """fakepve with the parts of a VM's life that the lab's clients need."""

    clone_secs = 0
    manners = (9, 1)
    stale_list = False

    def _build_app(self):
        app = super()._build_app()
        app.middlewares.insert(0, self._manners)
        return app

    @web.middleware
    async def _manners(self, request, handler):
        response = await handler(request)
        if response.status < 400 or self.manners >= (8, 4) or not isinstance(response, web.Response):
            return response
        body = json.loads(response.text) if response.text else {'data': None}
        body.pop('message', None)
        response.text = json.dumps(body)
        return response

    def _routes_lab(self):
        one = '/nodes/{node}/qemu/{vmid}'
        return [('PUT', one + '/resize', self._resize), ('POST', one + '/move_disk', self._move_disk),
                ('GET', one + '/cloudinit', self._cloudinit_pending),
                ('PUT', one + '/cloudinit', self._cloudinit_update)]

    # ------------------------------------------------------------------ a clone in the making

    async def ceph_io(self, vm, keys=None):
        # The last thing a clone waits for before it drops its lock.
        if vm.lock == 'clone':
            await self.pause(self.clone_secs)
            self._own_cloudinit(vm)
        await super().ceph_io(vm, keys)

    def _own_cloudinit(self, vm):
        """PVE gives a clone its own cloud-init drive; fakepve leaves the template's in place."""
        for key, volume, props in drives_of(vm.config):
            found = re.fullmatch(r'([^:]+):(.*/)?vm-\d+-cloudinit(\.\w+)?', volume)
            if found:
                volid = '{0}:{1}vm-{2}-cloudinit{3}'.format(found[1], found[2] or '', vm.vmid, found[3] or '')
                vm.config[key] = join_drive(volid, props)

    def _vm_status(self, vm, listing=False):
        status = super()._vm_status(vm, listing)
        if vm.lock == 'clone':
            status['name'] = 'VM {0}'.format(vm.vmid)
        return status

    async def _resources(self, request):
        answer = json.loads((await super()._resources(request)).text)
        for row in answer['data']:
            if self.stale_list and row.get('type') in ('qemu', 'lxc'):
                for key in set(row) - {'id', 'vmid', 'node', 'type', 'lock', 'tags'}:
                    del row[key]
                row['status'] = 'unknown'
            if row.get('lock') == 'clone':
                row.pop('name', None)
                row['status'] = 'unknown'
        return web.json_response(answer)

    async def _pending(self, request):
        vm = self._vm(request, 'VM.Audit')
        if vm.lock == 'clone':
            return ok([{'key': 'lock', 'value': 'clone'}, {'key': 'digest', 'value': vm.digest()}])
        return await super()._pending(request)

    async def _config_get(self, request):
        vm = self._vm(request, 'VM.Audit')
        if vm.lock == 'clone':
            return ok({'lock': 'clone', 'digest': vm.digest()})
        snapshot = request.query.get('snapshot')
        if snapshot:
            # PVE/AbstractConfig.pm, load_snapshot_config
            if snapshot not in vm.snapshots:
                raise PveError(500, "snapshot '{0}' does not exist".format(snapshot))
            return ok(dict(vm.snapshots[snapshot], digest=vm.digest()))
        answer = json.loads((await super()._config_get(request)).text)
        if 'cipassword' in answer['data']:
            answer['data']['cipassword'] = '**********'
        return web.json_response(answer)

    # ------------------------------------------------------------------ config

    async def _apply_config(self, vm, user, p):
        if p.get('digest') and p['digest'] != vm.digest():
            raise PveError(500, 'checksum mismatch (file change by other user?)')
        self._check_lock(vm)
        if not [key for key in p if key not in ('digest', 'skiplock')]:
            raise PveError(500, 'no options specified')
        changes = {key: int(value) if key in INTEGERS else value for key, value in p.items()}
        if changes.get('sshkeys'):
            check_ssh_keys(changes['sshkeys'])
        if changes.get('tags'):
            changes['tags'] = normal_tags(changes['tags'])
        if changes.get('description'):
            changes['description'] = changes['description'].rstrip()
        for key in [key for key in changes if re.fullmatch(r'net\d+', key)]:
            changes[key] = with_mac(changes[key])
        for key in [key for key in changes if DRIVE_KEY.match(key)]:
            self._qm_check_drive(user, vm.vmid, None, key, changes[key], None)
            changes[key] = self._qm_new_drive(vm.vmid, key, changes[key], None)[0]
        removed = self._removed(vm, changes)
        detached = self._detached(vm, changes)
        await super()._apply_config(vm, user, changes)
        # QemuServer.pm, fast_plug_option: cloud-init's settings are never pending.
        for key in [key for key in vm.pending if CLOUD_INIT.match(key)]:
            value = vm.pending.pop(key)
            vm.config.pop(key, None) if value is None else vm.config.update({key: value})
        for volume in removed:
            self._qm_free(volume)
        # QemuServer.pm, write_vm_config: what is in a slot again is not unused.
        used = {volume for _key, volume, _props in drives_of(vm.config)}
        for key in [key for key in vm.config if UNUSED.match(key) and vm.config[key] in used]:
            del vm.config[key]
        for volume in detached:
            vm.config[self._free_unused(vm)] = volume

    @staticmethod
    def _removed(vm, changes):
        """update_vm_api: to delete an unused volume's key deletes the volume, unless the VM is protected."""
        gone = [key for key in str(changes.get('delete') or '').split(',') if UNUSED.match(key) and key in vm.config]
        disks = [key for key in str(changes.get('delete') or '').split(',') if DRIVE_KEY.match(key)]
        if vm.config.get('protection') in (1, '1'):
            for key in gone:
                raise PveError(500, "can't remove unused disk '{0}' - protection mode enabled".format(vm.config[key]))
            for key in disks:
                raise PveError(500, "can't remove drive '{0}' - protection mode enabled".format(key))
        return [vm.config[key] for key in gone]

    @staticmethod
    def _detached(vm, changes):
        """Volumes that lose their slot: PVE keeps them as unusedN."""
        gone = [key for key in str(changes.get('delete') or '').split(',') if DRIVE_KEY.match(key)]
        out = []
        for key, volume, props in drives_of(vm.config):
            new = split_drive(changes[key])[0] if key in changes else None
            moved = new is not None and new != volume
            if (moved or key in gone) and not is_cdrom(volume, props) and volume_ref(volume)[0]:
                out.append(volume)
        return out

    @staticmethod
    def _free_unused(vm):
        return next(key for key in map('unused{0}'.format, range(256)) if key not in vm.config)

    async def _resize(self, v, user):
        vm = self.find(v['node'], v['vmid'])
        disk, wanted = v['disk'], RESIZE.match(str(v['size']))
        self.require(user, '/vms/{0}'.format(vm.vmid), 'VM.Config.Disk')
        if v.get('digest') and v['digest'] != vm.digest():
            raise PveError(500, 'checksum mismatch (file change by other user?)')

        async def body():
            if vm.lock:
                raise TaskError('VM is locked ({0})'.format(vm.lock))
            if disk not in vm.config:
                raise TaskError("disk '{0}' does not exist".format(disk))
            volume, props = split_drive(vm.config[disk])
            if is_cdrom(volume, props):
                raise TaskError("you can't resize a cdrom")
            stored = self._qm_volume(volume) or {}
            old = int(stored.get('size') or parse_size(props.get('size', '0')))
            size = parse_size(wanted.group(2)) + (old if wanted.group(1) else 0)
            if size < old:
                raise TaskError('shrinking disks is not supported')
            stored['size'] = size
            vm.config[disk] = join_drive(volume, dict(props, size=format_size(size)))
        if self.manners < (8, 0):
            try:
                return await body()
            except TaskError as error:
                raise PveError(500, str(error)) from error
        return await self.task(vm.node, 'resize', vm.vmid, user, body, vm=vm)

    async def _agent(self, request):
        vm = self._vm(request)
        privilege = 'VM.GuestAgent.Audit' if self.manners >= (9, 0) else 'VM.Monitor'
        self.require(request[USER], '/vms/{0}'.format(vm.vmid), privilege)
        return await super()._agent(request)


    # ------------------------------------------------------------------ a disk for another VM

    async def _move_disk(self, v, user):
        """move_vm_disk with target-vmid; to move to another storage is fakepve's own affair."""
        if not v.get('target-vmid'):
            raise PveError(501, 'the lab moves disks to other VMs only')
        source, disk = self.find(v['node'], v['vmid']), v['disk']
        key = v.get('target-disk') or disk
        self.require(user, '/vms/{0}'.format(source.vmid), 'VM.Config.Disk')
        self.require(user, '/vms/{0}'.format(v['target-vmid']), 'VM.Config.Disk')
        if int(v['target-vmid']) == source.vmid:
            raise PveError(400, 'Parameter verification failed.',
                           {'target-vmid': 'must be different than source VMID to reassign disk'})
        volume = self._check_reassign(source, disk, v['target-vmid'], key)
        self.require(user, '/storage/{0}'.format(volume_ref(volume)[0]), 'Datastore.AllocateSpace')

        async def body():
            try:
                self._check_reassign(source, disk, v['target-vmid'], key)
            except PveError as error:
                raise TaskError(error.message) from error
            target = self.vm(int(v['target-vmid']))
            props = split_drive(source.config[disk])[1]
            moved = self._rename(volume, target.vmid)
            order = str(source.config.get('boot', '')).replace('order=', '').split(';')
            source.config['boot'] = 'order=' + ';'.join(dev for dev in order if dev and dev != disk)
            del source.config[disk]
            target.config[key] = moved if UNUSED.match(key) else join_drive(moved, props)
        name = '{0}-{1}>{2}-{3}'.format(source.vmid, disk, v['target-vmid'], key)
        return await self.task(source.node, 'qmmove', name, user, body, vm=source)

    def _check_reassign(self, source, disk, target_vmid, key):
        """move_vm_disk, load_and_check_reassign_configs."""
        target = self.vm(int(target_vmid))
        if target is None:
            raise PveError(500, 'could not find target VM {0}'.format(target_vmid))
        if target.node != source.node:
            raise PveError(500, 'Both VMs need to be on the same node ({0} != {1})'.format(source.node, target.node))
        self._check_lock(source)
        self._check_lock(target)
        if source.template or target.template:
            raise PveError(500, "Can't move disks from or to template VMs")
        if disk not in source.config:
            raise PveError(500, "Disk '{0}' for VM '{1}' does not exist".format(disk, source.vmid))
        if key in target.config:
            raise PveError(500, "Target disk key '{0}' is already in use for VM '{1}'".format(key, target_vmid))
        volume, props = split_drive(source.config[disk])
        if is_cdrom(volume, props):
            raise PveError(500, "CD drive contents can't be moved to another VM")
        if any(volume == held for snapshot in source.snapshots.values() for _, held, _ in drives_of(snapshot)):
            raise PveError(500, "Can't move disk used by a snapshot to another VM")
        # PVE/Storage/Plugin.pm, volume_has_feature
        if self.storages.get(volume_ref(volume)[0], {}).get('type') in ('iscsi', 'iscsidirect'):
            raise PveError(500, 'Storage does not support moving of this disk to another VM')
        if source.status == 'running' and not UNUSED.match(disk):
            raise PveError(500, 'Cannot move disk to another VM while the source VM is running - detach first')
        return volume

    def _rename(self, volume, vmid):
        sid, name = volume_ref(volume)
        stored = self.storages[sid].setdefault('volumes', {})
        record = stored.pop(name)
        name = self._qm_free_name(sid, vmid, record.get('format') or 'raw')
        stored[name] = dict(record, vmid=vmid)
        return '{0}:{1}'.format(sid, name)

    # ------------------------------------------------------------------ cloud-init's drive

    def _cloudinit_keys(self, vm):
        """What a drive is made of: QemuServer/Cloudinit.pm."""
        return {key: str(value) for key, value in vm.config.items()
                if CLOUD_INIT.match(key) or re.match(r'(name|net\d+)$', key)}

    async def _do_start(self, vm, user, p):
        # vm_start, apply_cloudinit_config
        vm.baked = self._cloudinit_keys(vm)
        return await super()._do_start(vm, user, p)

    async def _cloudinit_pending(self, v, user):
        vm = self.find(v['node'], v['vmid'])
        now, baked = self._cloudinit_keys(vm), getattr(vm, 'baked', {})
        rows = []
        for key in sorted(set(now) | set(baked)):
            row = {'key': key}
            if key in baked:
                row['value'] = baked[key]
            if key not in now:
                row['delete'] = 1
            elif now[key] != baked.get(key):
                row['pending'] = now[key]
            rows.append(row)
        return rows

    async def _cloudinit_update(self, v, user):
        vm = self.find(v['node'], v['vmid'])
        self._check_lock(vm)
        vm.baked = self._cloudinit_keys(vm)


def add_volumes(pve, vmid, config):
    """Gives the volumes that a config names a place on their storages, so that they have a real size."""
    for _key, volume, props in drives_of(config):
        sid, name = volume_ref(volume)
        if sid in pve.storages and not volume.endswith(':cloudinit'):
            pve.storages[sid].setdefault('volumes', {})[name] = {
                'content': 'images', 'format': 'raw', 'vmid': vmid, 'ctime': 0,
                'size': parse_size(props.get('size', '4M'))}


def build(spec):
    pve = LabPve(password=spec['password'], host=spec['host'], port=spec['port'])
    pve.time_scale = spec['time_scale']
    pve.clone_secs = spec['clone_secs']
    pve.manners = tuple(int(part) for part in spec['release'].split('.'))
    pve.stale_list = spec['stale_list']
    pve.apitokens.update(spec['tokens'])
    if spec['nodes']:
        pve.nodes = {name: {'online': True} for name in spec['nodes']}
    for sid, store in spec['storages'].items():
        pve.storages[sid] = dict({'active': 1, 'files': set()}, **store)
    for guest in spec['guests']:
        place = {'node': guest['node'], 'status': guest['status'], 'config': guest['config'],
                 'template': guest['template']}
        if guest['kind'] == 'lxc':
            pve.add_ct(guest['vmid'], guest['name'], **place)
            continue
        pve.add_vm(guest['vmid'], guest['name'], **place)
        add_volumes(pve, guest['vmid'], guest['config'])
    for vmid, interfaces in spec['agents'].items():
        pve.vm(int(vmid)).agent = {'interfaces': interfaces}
    for user, path, privileges in spec['grants']:
        pve.grant(user, path, *privileges)
    return pve


def slow_starts(pve, secs):
    """Every VM, also one cloned later, takes this long to start."""
    plain_start = pve._do_start

    async def start(vm, user, p):
        vm.start_secs = secs
        return await plain_start(vm, user, p)
    pve._do_start = start


async def serve():
    loop = asyncio.get_running_loop()
    spec = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    pve = build(spec)
    slow_starts(pve, spec['start_secs'])
    await pve.start(spec['cert'], spec['key'])
    print(json.dumps({'port': pve.port}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    await pve.stop()


if __name__ == '__main__':
    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        pass
