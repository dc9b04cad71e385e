import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryOneTime;

/**
 * Curator's own recipes, told by lines what to do: {@code CuratorPeer HOSTS SESSION_MS}.
 *
 * <p>A line is {@code ACTOR VERB WORD...}. An actor is a thread that does one thing after another, so that a lock has
 * an owner; first it becomes a recipe ({@code a mutex PATH}), then it is told to use it ({@code a acquire 1000}). Each
 * line is answered by one, {@code ACTOR ANSWER}; an error is answered {@code !CLASS MESSAGE}. A time of -1 is without
 * end. At the end of its input the program closes its session.
 */
public final class CuratorPeer {
    /** What an actor does when it is told a verb. */
    private interface Deed {
        Object on(String[] words) throws Exception;
    }

    private final CuratorFramework client;
    private final Map<String, ExecutorService> actors = new HashMap<>();
    private final Map<String, Map<String, Deed>> deeds = new HashMap<>();

    private CuratorPeer(CuratorFramework client) {
        this.client = client;
    }

    public static void main(String[] args) throws Exception {
        int session = Integer.parseInt(args[1]);
        CuratorFramework client =
                CuratorFrameworkFactory.builder().connectString(args[0]).sessionTimeoutMs(session)
                        .connectionTimeoutMs(session).retryPolicy(new RetryOneTime(100))
                        .ensembleTracker(false)  // its watch comes some time after the connection
                        .build();
        client.start();
        client.blockUntilConnected();
        new CuratorPeer(client).serve(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        client.close();
        System.exit(0);
    }

    private void serve(BufferedReader lines) throws Exception {
        answer("all", "ready");
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            actors.computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor())
                    .execute(() -> answer(words[0], done(words)));
        }
    }

    private static synchronized void answer(String actor, Object what) {
        System.out.println(actor + " " + what);
        System.out.flush();
    }

    private Object done(String[] words) {
        String[] rest = Arrays.copyOfRange(words, 2, words.length);
        try {
            Map<String, Deed> mine = deeds(words[0]);
            if (mine.containsKey(words[1])) {
                return mine.get(words[1]).on(rest);
            }
            become(mine, words[1], rest);
            return "ok";
        } catch (Exception error) {
            return "!" + error.getClass().getSimpleName() + " " + error.getMessage();
        }
    }

    private synchronized Map<String, Deed> deeds(String actor) {
        return deeds.computeIfAbsent(actor, name -> new HashMap<>());
    }

    private void become(Map<String, Deed> deeds, String recipe, String[] words) throws Exception {
        deeds.clear();
        String path = words[0];
        switch (recipe) {
            case "mutex" -> lock(deeds, "", new InterProcessMutex(client, path));
            case "readwrite" -> {
                InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
                lock(deeds, "-read", both.readLock());
                lock(deeds, "-write", both.writeLock());
            }
            case "semaphore" -> semaphore(deeds, new InterProcessSemaphoreV2(client, path, number(words[1])));
            case "meeting" -> meeting(deeds, new DistributedDoubleBarrier(client, path, number(words[1])));
            case "gate" -> gate(deeds, new DistributedBarrier(client, path));
            case "latch" -> latch(deeds, path, words[1]);
            case "selector" -> selector(deeds, path, words[1]);
            case "revoker" -> deeds.put("revoke", told -> ok(() -> Revoker.attemptRevoke(client, told[0])));
            default -> throw new IllegalArgumentException(recipe);
        }
    }

    private static void lock(Map<String, Deed> deeds, String which, InterProcessMutex mutex) {
        Semaphore asked = new Semaphore(0);
        deeds.put("acquire" + which, told -> millis(told) < 0
                ? ok(mutex::acquire) : mutex.acquire(millis(told), TimeUnit.MILLISECONDS));
        deeds.put("release" + which, told -> ok(mutex::release));
        deeds.put("cycle" + which, told -> cycle(deeds.get("acquire" + which), deeds.get("release" + which), told));
        deeds.put("line" + which, told -> joined(mutex.getParticipantNodes()));
        deeds.put("heed" + which, told -> ok(() -> mutex.makeRevocable(any -> asked.release())));
        deeds.put("asked" + which, told -> asked.tryAcquire(millis(told), TimeUnit.MILLISECONDS));
    }

    private static void semaphore(Map<String, Deed> deeds, InterProcessSemaphoreV2 semaphore) {
        List<Lease> leases = new ArrayList<>();
        deeds.put("acquire", told -> {
            Lease lease = millis(told) < 0
                    ? semaphore.acquire() : semaphore.acquire(millis(told), TimeUnit.MILLISECONDS);
            return lease != null && leases.add(lease);
        });
        deeds.put("release", told -> ok(() -> semaphore.returnLease(leases.remove(0))));
        deeds.put("cycle", told -> cycle(deeds.get("acquire"), deeds.get("release"), told));
        deeds.put("line", told -> joined(semaphore.getParticipantNodes()));
    }

    /** Acquires and releases so often: how many were inside at most, each of whom has a file in the folder. */
    private static int cycle(Deed acquire, Deed release, String[] told) throws Exception {
        int most = 0;
        for (int turn = number(told[0]); turn > 0; turn--) {
            acquire.on(new String[0]);
            File mark = mark(told[1], "inside");
            most = Math.max(most, marks(told[1], ""));
            mark.delete();
            release.on(new String[0]);
        }
        return most;
    }

    private static void meeting(Map<String, Deed> deeds, DistributedDoubleBarrier meeting) {
        deeds.put("enter", told -> millis(told) < 0
                ? ok(meeting::enter) : meeting.enter(millis(told), TimeUnit.MILLISECONDS));
        deeds.put("leave", told -> millis(told) < 0
                ? ok(meeting::leave) : meeting.leave(millis(told), TimeUnit.MILLISECONDS));
        deeds.put("meet", told -> {
            mark(told[0], "begun");
            meeting.enter();
            int begun = marks(told[0], "begun");
            mark(told[0], "ended");
            meeting.leave();
            return begun + " " + marks(told[0], "ended");
        });
    }

    private static File mark(String folder, String prefix) throws IOException {
        return File.createTempFile(prefix, "", new File(folder));
    }

    private static int marks(String folder, String prefix) {
        return new File(folder).list((any, name) -> name.startsWith(prefix)).length;
    }

    private static void gate(Map<String, Deed> deeds, DistributedBarrier gate) {
        deeds.put("close", told -> ok(gate::setBarrier));
        deeds.put("open", told -> ok(gate::removeBarrier));
        deeds.put("wait", told -> gate.waitOnBarrier(millis(told), TimeUnit.MILLISECONDS));
    }

    /** Who has resigned does not stand again: to stand anew is a new LeaderLatch. */
    private void latch(Map<String, Deed> deeds, String path, String id) {
        LeaderLatch[] latch = {null};
        deeds.put("stand", told -> ok(() -> (latch[0] = new LeaderLatch(client, path, id)).start()));
        deeds.put("lead", told -> latch[0].await(millis(told), TimeUnit.MILLISECONDS));
        deeds.put("leads", told -> latch[0].hasLeadership());
        deeds.put("leader", told -> latch[0].getLeader().getId());
        deeds.put("resign", told -> ok(latch[0]::close));
    }

    private void selector(Map<String, Deed> deeds, String path, String id) {
        Semaphore elected = new Semaphore(0);
        LeaderSelector selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework any) throws InterruptedException {
                elected.release();
                Thread.sleep(Long.MAX_VALUE);
            }
        });
        selector.setId(id);
        deeds.put("stand", told -> ok(selector::start));
        deeds.put("lead", told -> elected.tryAcquire(millis(told), TimeUnit.MILLISECONDS));
        deeds.put("leads", told -> selector.hasLeadership());
        deeds.put("leader", told -> selector.getLeader().getId());
        deeds.put("resign", told -> ok(selector::close));
    }

    private interface Act {
        void run() throws Exception;
    }

    private static String ok(Act act) throws Exception {
        act.run();
        return "ok";
    }

    private static long millis(String[] words) {
        return words.length == 0 ? -1 : Long.parseLong(words[0]);
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    private static String joined(Collection<String> paths) {
        return String.join(" ", paths);
    }
}
