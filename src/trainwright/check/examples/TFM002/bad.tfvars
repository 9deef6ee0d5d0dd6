# expect: 3:1
region     = "us-west-2"
node_counts = 16
