region     = "us-west-2"
node_count = 16
