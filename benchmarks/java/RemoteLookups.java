import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.view.FileSystemViewStorageConfig;
import org.apache.hudi.common.table.view.FileSystemViewStorageType;
import org.apache.hudi.common.table.view.RemoteHoodieTableFileSystemView;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;

/**
 * Look-ups of Hudi's tasks in one JVM: a REMOTE view for each task, asked for partitions in turn.
 *
 * <p>Argument: the base path. Each line of standard input is a job: the server's port, then for each
 * task its partitions, joined by commas. The answer is one line: "done NANOSECONDS FILES". The time
 * is that of making the views and of their answers, as lists of base files. The table's metadata
 * is read before: Hudi's tasks receive it from the driver.
 */
public final class RemoteLookups {
  private RemoteLookups() {}

  public static void main(String[] arguments) throws Exception {
    HoodieTableMetaClient table =
        HoodieTableMetaClient.builder()
            .setConf(new HadoopStorageConfiguration(new Configuration()))
            .setBasePath(arguments[0])
            .build();
    table.getActiveTimeline();
    System.out.println("ready");
    BufferedReader jobs =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String job = jobs.readLine(); job != null; job = jobs.readLine()) {
      String[] words = job.split(" ");
      FileSystemViewStorageConfig remote =
          FileSystemViewStorageConfig.newBuilder()
              .withStorageType(FileSystemViewStorageType.REMOTE_ONLY)
              .withRemoteServerHost("127.0.0.1")
              .withRemoteServerPort(Integer.parseInt(words[0]))
              .build();
      long files = 0;
      long started = System.nanoTime();
      for (int task = 1; task < words.length; task++) {
        RemoteHoodieTableFileSystemView view = new RemoteHoodieTableFileSystemView(table, remote);
        for (String partition : words[task].split(",")) {
          files += view.getLatestBaseFiles(partition).collect(Collectors.toList()).size();
        }
        view.close();
      }
      System.out.println("done " + (System.nanoTime() - started) + " " + files);
    }
  }
}
