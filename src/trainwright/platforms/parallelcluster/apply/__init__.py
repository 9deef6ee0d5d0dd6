"""What is ParallelCluster's own when a cluster is made or removed: the cluster through `pcluster`, its files, the key
pair, its machines. The rest is shared by all platforms on AWS (`platforms/apply`)."""
